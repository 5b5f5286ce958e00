"""Rows of a page as a tree, and the parts of it that are asked for."""

from palyra.browser.domain.page_tree import PageNode, cut_depth, found, graft, grow, only_interactive, tidy


def same(text: str) -> str:
    return text


def shape(nodes: list[PageNode]) -> list[object]:
    return [(node.role, node.name, shape(node.children)) if node.children else (node.role, node.name) for node in nodes]


ROWS = [
    (-1, 1, "main", "", None),
    (0, 2, "heading", "Orders", {"level": "1"}),
    (1, 0, "text", "Orders", None),
    (0, 3, "list", "", None),
    (3, 4, "listitem", "", None),
    (4, 0, "text", "Shoe ", None),
    (4, 5, "button", "Buy", {}),
    (6, 0, "text", "Buy", None),
    (3, 6, "listitem", "", None),
    (0, 7, "iframe", "Pay", None),
]


def test_rows_grow_into_a_tree_that_says_nothing_twice() -> None:
    assert shape(tidy(grow(ROWS, "f", "l", same))) == [
        (
            "main",
            "",
            [
                ("heading", "Orders"),
                ("list", "", [("listitem", "", [("text", "Shoe"), ("button", "Buy")])]),
                ("iframe", "Pay"),
            ],
        )
    ]


def test_a_row_whose_parent_is_no_earlier_row_stands_alone() -> None:
    assert shape(grow([(5, 1, "button", "A", None), (1, 2, "button", "B", None)], "f", "l", same)) == [
        ("button", "A"),
        ("button", "B"),
    ]


def test_a_frame_is_put_where_its_element_is() -> None:
    roots = grow(ROWS, "f", "l", same)
    graft(roots, {("f", 7): grow([(-1, 1, "button", "Pay now", None)], "g", "m", same)})
    (frame,) = [node for node in roots[0].walk() if node.role == "iframe"]
    assert [(each.frame_id, each.loader_id, each.name) for each in frame.children] == [("g", "m", "Pay now")]


def test_secrets_are_taken_out_of_names_and_states_but_the_page_knows_its_own() -> None:
    (node,) = grow([(-1, 1, "textbox", "key s3", {"value": "s3"})], "f", "l", lambda text: text.replace("s3", "*"))
    assert (node.name, node.states, node.page_name) == ("key *", {"value": "*"}, "key s3")


def test_only_interactive_elements() -> None:
    assert shape(only_interactive(tidy(grow(ROWS, "f", "l", same)))) == [("button", "Buy")]


def test_what_was_found_comes_with_its_ancestors_and_its_row() -> None:
    nodes, count = found(tidy(grow(ROWS, "f", "l", same)), "SHOE")
    assert count == 1
    assert shape(nodes) == [("main", "", [("list", "", [("listitem", "", [("text", "Shoe"), ("button", "Buy")])])])]
    (item,) = [node for node in nodes[0].walk() if node.role == "listitem"]
    assert item.wants_ref
    assert found(tidy(grow(ROWS, "f", "l", same)), "trousers") == ([], 0)


def test_down_to_a_depth() -> None:
    nodes = cut_depth(tidy(grow(ROWS, "f", "l", same)), 2)
    assert shape(nodes) == [("main", "", [("heading", "Orders"), ("list", ""), ("iframe", "Pay")])]
    assert nodes[0].children[1].beneath == 3
