// Numbers, each against what is usual.

function openNumbers(root) {
  return {
    update(component) {
      reconcile(root, (component.data && component.data.tiles) || [], (tile, index) => `${index}/${tile.label}`, () => {
        const node = el("div", "tv-tile"), value = el("b", "tv-value");
        value.append(el("span"), el("span", "tv-glyph"));
        node.append(el("span", "tv-label"), value, el("span", "tv-context"));
        return node;
      }, (node, tile) => {
        const tone = ["critical", "warning", "paused", "ok", "info"].includes(tile.tone) ? tile.tone : "";
        const glyph = tile.glyph === undefined || tile.glyph === null ? (tone === "critical" || tone === "warning" ? "!" : "") : tile.glyph;
        const [label, value, context] = node.children;
        setText(label, tile.label);
        setText(value.firstChild, tile.value ?? "–");
        setText(value.lastChild, glyph);
        setText(context, tile.context || "\u00a0");
        setClass(node, `tv-tile${tone ? ` tv-tone-${tone}` : ""}`);
        node.title = tile.help || "";
      });
    },
    close() {},
  };
}

export default function (component) { return mount(component, ".tv-kpi", openNumbers); }
