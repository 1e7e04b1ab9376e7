// The newest checkpoints in order; each is a button, so keyboard and screen readers need nothing more.

const LABEL_PX = 62;

function openStrip(root) {
  const row = el("div", "tv-cells");
  const empty = el("div", "tv-none");
  root.append(empty, row);
  let api, cells = [], words = {};

  // A label under every k-th cell, counted from the recommended one (else the newest): those two are always named.
  function label() {
    const each = (root.clientWidth || 600) / Math.max(cells.length, 1);
    const every = Math.max(1, Math.ceil(LABEL_PX / each));
    const safe = cells.findIndex((cell) => cell.is_recommended);
    const anchor = safe >= 0 ? safe : cells.length - 1;
    [...row.children].forEach((node, index) => {
      node.querySelector(".tv-step").classList.toggle("tv-muted", (index - anchor) % every !== 0);
      const top = node.querySelector(".tv-top");
      top.classList.toggle("tv-end", index * each + 120 > (root.clientWidth || 600));
    });
  }

  const watcher = new ResizeObserver(label);
  watcher.observe(root);
  return {
    update(component) {
      api = component;
      cells = (component.data && component.data.cells) || [];
      words = { none: "No checkpoint seen yet.", safe: "safe", recommended: "recommended: ", ...component.data.words };
      setText(empty, cells.length ? "" : words.none);
      row.hidden = !cells.length;
      reconcile(row, cells, (cell) => cell.path, (cell) => {
        const isStatic = Boolean(component.data.is_static);
        const node = el(isStatic ? "div" : "button");
        if (isStatic) node.setAttribute("role", "img");
        else node.type = "button";
        node.append(el("span", "tv-top"), el("span", "tv-bar"), el("span", "tv-step"));
        if (!isStatic) node.addEventListener("click", () => api.setTriggerValue("click", cell.path));
        return node;
      }, (node, cell) => {
        const [top, bar, step] = node.children;
        const tone = /^[a-z]+$/.test(cell.tone) ? cell.tone : "faint";
        setText(top, cell.is_recommended ? `${cell.label} ✓ ${words.safe}` : "");
        setText(bar, cell.glyph);
        bar.hidden = false;
        setText(step, cell.label);
        setClass(node, `tv-cell tv-${tone}${cell.is_strong ? " tv-strong" : ""}${cell.is_recommended ? " tv-safe" : ""} tv-state-${cell.state}`);
        node.title = upright(cell.title || "");
        node.setAttribute("aria-label", (cell.is_recommended ? words.recommended : "") + upright(cell.title || cell.label));
      });
      label();
    },
    close() { watcher.disconnect(); },
  };
}

export default function (component) { return mount(component, ".tv-strip", openStrip); }
