"""The colours of drawings, and what each is in a page, which has a dark form."""

INK, MUTED, LINE, PAPER = "#22252b", "#676d78", "#e4e2dc", "#ffffff"
BLUE, ORANGE = "#2f6f8f", "#c8551b"
"""TCL and SupCon: apart in lightness and for every kind of colour vision; their marks differ too."""
PAGE_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    BLUE: "var(--accent)",
    ORANGE: "var(--warm)",
}
