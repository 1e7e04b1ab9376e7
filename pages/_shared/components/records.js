// Records below each other: columns where there is room, a block for each record where there is not. Text wraps, and can be marked and copied.

const KINDS = new Set(["lead", "name", "text", "short", "number"]);
const OPENS = new Set(["lead", "name"]);

function openRecords(root) {
  const box = el("div", "tv-record-box"), table = el("table"), head = el("thead"), heads = el("tr"), body = el("tbody");
  head.append(heads);
  table.append(head, body);
  box.append(table);
  const below = el("div", "tv-record-below");
  below.hidden = true;
  root.append(box, below);
  let api, data = {}, opener = -1;
  box.addEventListener("scroll", tellBelow, { passive: true });
  const sizes = new ResizeObserver(fit);
  sizes.observe(table);

  function pick(id) { if (data.can_pick) api.setTriggerValue("pick", id); }

  function openRow(row) {
    const node = el("tr");
    node.addEventListener("click", (event) => {
      const marked = window.getSelection();
      const isMarking = marked && !marked.isCollapsed && node.contains(marked.anchorNode);
      if (!isMarking && !event.target.closest("button")) pick(node.tvId);
    });
    return node;
  }

  function fillCell(node, text, column, row, index) {
    const isButton = data.can_pick && index === opener;
    let holder = node.firstElementChild;
    if (!holder || (holder.tagName === "BUTTON") !== isButton) {
      holder = el(isButton ? "button" : "span", "tv-cell-text");
      if (isButton) { holder.type = "button"; holder.addEventListener("click", () => pick(node.parentElement.tvId)); }
      node.replaceChildren(holder);
    }
    if (isButton) holder.setAttribute("aria-pressed", String(row.id === data.picked));
    setText(holder, text);
    node.dataset.label = column.label;
    setClass(node, `tv-col-${KINDS.has(column.kind) ? column.kind : "text"}${text === "" || text === "–" ? " tv-nothing" : ""}`);
  }

  function fillRow(node, row) {
    node.tvId = row.id;
    const tone = ["critical", "warning", "ok", "faint"].includes(row.tone) ? ` tv-row-${row.tone}` : "";
    setClass(node, `${row.id === data.picked && data.can_pick ? "tv-picked" : ""}${tone}`.trim());
    reconcile(node, data.columns, (column) => column.label, () => el("td"), (cell, column, index) => fillCell(cell, String(row.cells[index] ?? ""), column, row, index));
  }

  // Where each record ends, from the top of what scrolls.
  function ends() {
    const top = box.getBoundingClientRect().top + box.clientTop - box.scrollTop;
    return [...body.children].map((row) => row.getBoundingClientRect().bottom - top);
  }

  // No line is cut through its middle: the box ends where a record ends, and what is below it is told.
  function fit() {
    const most = data.max_height || 0;
    const whole = most && box.scrollHeight > most ? ends().filter((end) => end <= most).pop() : 0;
    const wanted = most ? `${Math.ceil(whole ? whole + 2 * box.clientTop : most)}px` : "";
    if (box.style.maxHeight !== wanted) box.style.maxHeight = wanted;
    // What scrolls must be reached by the keyboard, too.
    if (box.scrollHeight > box.clientHeight + 1) { box.tabIndex = 0; box.setAttribute("role", "region"); box.setAttribute("aria-label", data.label || ""); }
    else { box.removeAttribute("tabindex"); box.removeAttribute("role"); box.removeAttribute("aria-label"); }
    tellBelow();
  }

  function tellBelow() {
    const bottom = box.scrollTop + box.clientHeight + 2;
    const count = box.scrollHeight > box.clientHeight + 1 ? ends().filter((end) => end > bottom).length : 0;
    setText(below, count ? `▾ ${count.toLocaleString("en")} more below` : "");
  }

  return {
    update(component) {
      api = component;
      data = { columns: [], rows: [], ...component.data };
      opener = data.columns.findIndex((column) => OPENS.has(column.kind));
      reconcile(heads, data.columns, (column) => column.label, () => { const node = el("th"); node.scope = "col"; return node; }, (node, column) => {
        setText(node, column.label);
        setClass(node, `tv-col-${KINDS.has(column.kind) ? column.kind : "text"}`);
      });
      reconcile(body, data.rows, (row, index) => row.id || index, openRow, fillRow);
      table.setAttribute("aria-label", data.label || "");
      setClass(table, data.can_pick ? "tv-can-pick" : "");
      fit();
    },
    close() { sizes.disconnect(); },
  };
}

export default function (component) { return mount(component, ".tv-records", openRecords); }
