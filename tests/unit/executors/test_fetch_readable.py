import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.limits import MAX_HTML_CHARS
from palyra.executors.fetch.readable import render_readable

BASE = "https://a.test/d/page"


def text_of(page: str) -> str:
    return render_readable(page, BASE, 1 << 20).text


def test_a_page() -> None:
    page = """<!doctype html><html><head><title> News &amp;
      more </title><style>p { color: red }</style><script>alert("<p>no")</script></head>
      <body><nav><a href="/">Home</a></nav><main><h1>The <em>head</em>line</h1>
      <p>One <a href="../x?y=1#z">link</a>, and <code>code</code>.<p>Second.
      <ul><li>first<li>second<ol><li>inner<li>next</ol></ul>
      <table><tr><th>A<th>B</tr><tr><td>1<td><p>2</p></table>
      <pre>
 kept   as
   it is
</pre><blockquote>said<p>again</blockquote><img alt="a cat" src=x><hr>
      last</main></body></html>"""
    found = render_readable(page, BASE, 1 << 20)
    assert found.title == "News & more" and not found.truncated
    assert found.text == (
        "# The headline\n\nOne [link](https://a.test/x?y=1#z), and code.\n\nSecond.\n\n"
        "- first\n- second\n  1. inner\n  2. next\n\n| A | B |\n| 1 | 2 |\n\n"
        "```\n kept   as\n   it is\n```\n\n> said\n\n> again\n\n[image: a cat]\n\n---\n\nlast"
    )


@pytest.mark.parametrize(
    "hidden",
    [
        "<div hidden>X<p>X</div>",
        "<span aria-hidden=TRUE>X</span>",
        "<p style='color: red; DISPLAY : none'>X</p>",
        "<p style='visibility:hidden'>X</p>",
        "<p style='font-size:0'>X</p>",
        "<p style='opacity:0.0;x:y'>X</p>",
        "<template>X</template>",
        "<script>X</script>",
        "<style>X</style>",
        "<svg><title>X</title><text>X</text></svg>",
        "<select><option>X</select>",
        "<textarea>X</textarea>",
        "<iframe>X</iframe>",
        "<!-- X -->",
        "<nav>X</nav>",
        "<div hidden><div>X</div>X</div>",
        "<p hidden>X<p>",
        "<dialog>X</dialog>",
        "<img alt=X hidden>",
    ],
)
def test_what_the_eye_does_not_see_is_left_out(hidden: str) -> None:
    assert text_of(f"before {hidden} after").split() == ["before", "after"]


@pytest.mark.parametrize("style", ["opacity:0.5", "font-size:0.9em", "display:block"])
def test_what_it_does_see_stays(style: str) -> None:
    assert text_of(f"<p style='{style}'>seen</p>") == "seen"


def test_a_page_of_navigation_only_is_an_index() -> None:
    assert text_of("<nav><a href='/a'>A</a></nav>") == "[A](https://a.test/a)"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<a href='javascript:alert(1)'>x</a>", "x"),
        ("<a href='data:text/html,y'>x</a>", "x"),
        ("<a href='#top'>x</a>", "x"),
        ("<a>x</a>", "x"),
        ("<a href='mailto:a@b.test'>x</a>", "[x](mailto:a@b.test)"),
        ("<a href='/a b)'>x</a>", "[x](https://a.test/a%20b%29)"),
        ("<a href='http://[bad'>x</a>", "x"),
        ("<a href='/" + "y" * 3000 + "'>x</a>", "x"),
        ("<base href='https://b.test/q/'><a href=r>x</a>", "[x](https://b.test/q/r)"),
        ("<base href='javascript:'><a href=r>x</a>", "[x](https://a.test/d/r)"),
        ("a<a href=/1>b<a href=/2>c", "a[b[c](https://a.test/2)](https://a.test/1)"),
        ("</a></ul></td></pre></blockquote>x", "x"),
        ("<li>x</li>", "- x"),
        ("<pre>```\nx</pre>", "````\n```\nx\n````"),
        ("<pre></pre>x", "x"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("", ""),
    ],
)
def test_odd_parts(page: str, text: str) -> None:
    assert text_of(page) == text


def test_output_is_bounded_though_links_and_lists_make_it_grow() -> None:
    for page in ("<a href=x>y</a>" * 10_000, "<ul><li>x" * 10_000, "<blockquote>x" * 10_000):
        found = render_readable(page, BASE, 5_000)
        assert len(found.text) <= 5_000 and found.truncated


@pytest.mark.parametrize(
    "unit",
    [
        "<", "<!--", "<![CDATA[", "<a ", '<a b="', "<?", "</", "</a ", "&", "&#", "&#9999", "<div>", "<!", "<script>",
        "<title>", "<a" + " " * 50, "<a/", "</script", "<ul><li>", "<blockquote>", "<a href=x>y", "<b></i>",
        "<p hidden>x", "<td>x", "<tr><td>", "<pre>`", "<svg><title>", "<nav>x", "<p style='" + "opacity:0" * 9 + "'>",
        "<table>", "<b><i></b></i>", "<base href=x>",
    ],
)  # fmt: skip
def test_bombs_cost_no_more_than_their_length(unit: str) -> None:
    """The standard library's parser would need minutes for several of these; the suite's timeout is the bound here."""
    page = unit * (MAX_HTML_CHARS // len(unit) + 1)
    found = render_readable(page, BASE, 1 << 20)
    assert len(found.text) <= 1 << 20


@given(
    st.lists(
        st.sampled_from(
            ["<div>", "</div>", "<p hidden>", "</p>", "<li>", "<ul>", "</ul>", "<ol>", "</ol>", "<a href=x>", "</a>",
             "<table>", "<tr>", "<td>", "</tr>", "</table>", "<pre>", "</pre>", "x", " ", "<svg>", "</svg>", "<title>",
             "</title>", "<blockquote>", "</blockquote>", "<nav>", "</nav>", "<br>", "<h1>", "</h1>", "<script>"]
        ),
        max_size=60,
    )
)  # fmt: skip
def test_any_nesting_is_rendered(parts: list[str]) -> None:
    found = render_readable("".join(parts), BASE, 1 << 20)
    assert found.text == found.text.strip()
