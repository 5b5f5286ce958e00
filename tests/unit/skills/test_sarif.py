from palyra.skills.trust.findings import RULES, AuditReport, finding, to_sarif


def test_results_point_to_their_rules_and_places() -> None:
    findings = (finding("sbom", "sbom.cdx.json", "no match"), finding("capability-excess", "skill.toml", "9", line=7))
    report = AuditReport(digest="ab", skill_id="acme.notes", version="1.0.0", findings=findings)
    document = to_sarif(report, tool_version="0.1.0", file="notes.skill")
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    first, second = run["results"]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "sbom" and first["level"] == "error"
    place = second["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "notes.skill/skill.toml"}, "region": {"startLine": 7}}
    assert run["artifacts"][0]["hashes"] == {"sha-256": "ab"}


def test_a_file_of_any_name_gives_a_uri() -> None:
    report = AuditReport(digest="ab", findings=(finding("sbom", "sbom.cdx.json", "no match"),))
    file = "javascript:a b\u202e#?%\n\udcff.skill"
    (run,) = to_sarif(report, tool_version="0", file=file)["runs"]
    uri = "javascript%3Aa%20b%E2%80%AE%23%3F%25%0A%FF.skill"
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    # In ASCII: a name that is not UTF-8 could not be reported.
    found = [ascii(run["artifacts"][0]["location"]["uri"]), ascii(place["uri"])]
    assert found == [f"'{uri}'", f"'{uri}/sbom.cdx.json'"]


def test_a_report_without_findings_is_a_clean_run() -> None:
    assert to_sarif(AuditReport(digest="ab"), tool_version="0")["runs"][0]["results"] == []
