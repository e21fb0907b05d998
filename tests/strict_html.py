"""Parses a page strictly and keeps what the tests ask about."""

from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br", "wbr"}


class Page(HTMLParser):
    """Tags must close in order; `attributes` has those of every tag, `text` what a person reads."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for found, attributes in self.attributes if found == tag]

    def check_safe(self) -> None:
        """Nothing is fetched or run, every anchor is unique, and pictures and tables have a text for everybody."""
        assert not self.all("script")
        anchors = [attributes["id"] for _, attributes in self.attributes if "id" in attributes]
        assert len(anchors) == len(set(anchors))
        for tag, attributes in self.attributes:
            assert not any(name.startswith("on") for name in attributes), (tag, attributes)
            for name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert all(attributes.get("alt") for attributes in self.all("img"))
        assert all(attributes.get("scope") in ("row", "col") for attributes in self.all("th"))
        assert all("aria-label" in attributes or "aria-hidden" in attributes for attributes in self.all("svg"))
