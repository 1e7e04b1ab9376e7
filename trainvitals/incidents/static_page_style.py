"""The style of the pages that stand alone: light and dark as the reader's system wants it, from a phone's width on."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--quiet:#5b6470;--rule:#d8dde3;--critical:#b3261e;--warning:#8a5300;--line:#1f5fbf;--span:#b3261e22}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8ebef;--quiet:#9aa4af;--rule:#343b44;--critical:#ff8a80;--warning:#f0b45c;--line:#7fb2ff;--span:#ff8a8033}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:16px}
h1{font-size:1.4rem;line-height:1.3;margin:.3rem 0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.4rem 0 .3rem}
p{margin:.4rem 0;overflow-wrap:anywhere;white-space:pre-line}
.state{font-weight:600;letter-spacing:.02em}
.critical{color:var(--critical)}.warning{color:var(--warning)}.quiet,footer,.info{color:var(--quiet)}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
td,th{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-top:1px solid var(--rule);overflow-wrap:anywhere;white-space:pre-line}
td:last-child{width:100%;min-width:14rem}
th{color:var(--quiet);font-weight:500;font-size:.85rem;border-top:0}
.facts td:first-child{color:var(--quiet);white-space:nowrap}
.rows td:not(:last-child){white-space:nowrap}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.grid{stroke:var(--rule)}.line{fill:none;stroke:var(--line);stroke-width:1.5}.span{fill:var(--span)}.bad{stroke:var(--critical);stroke-width:2}
a{color:var(--line)}
@media (max-width:640px){svg{font-size:20px}.line{stroke-width:2.5}.rows tr{display:block;border-top:1px solid var(--rule);padding:.35rem 0}.rows tr:first-child{display:none}.rows td{display:inline;border:0;padding-right:.6rem;color:var(--quiet)}.rows td:last-child{display:block;color:var(--ink)}.facts tr,.facts td{display:block}.facts td{border:0;padding:.1rem 0}.facts tr{border-top:1px solid var(--rule);padding:.3rem 0}}
footer{margin-top:1.6rem;border-top:1px solid var(--rule);padding-top:.6rem;font-size:.85rem;overflow-wrap:anywhere}
"""
