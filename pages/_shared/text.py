"""The one gate for text from outside into widgets that read Markdown.

Most text goes through ``st.text``, ``st.code``, a dataframe or our own components, which are literal. Labels, alerts and the
like render Markdown: there, a name such as ``![](http://…)`` would make every browser call out. ``plain`` takes that away.
"""

import unicodedata

#: Everything that Markdown, Streamlit's directives (:red[…], :material/…:), LaTeX ($…$) or HTML may react to.
_SPECIAL = frozenset("\\`*_{}[]()<>#+-.!|~^$:&=\"'@/")
LONGEST = 400


def plain(text: object, longest: int = LONGEST) -> str:
    """``text`` as a Markdown source that shows exactly these characters, on one line; cut after ``longest`` characters."""
    shown = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in str(text))
    shown = " ".join(shown.split())
    if len(shown) > longest:
        shown = shown[: longest - 1] + "…"
    return "".join(f"&#{ord(character)};" if character in _SPECIAL else character for character in shown)
