// Named facts below each other: what the logs say, what a start changed. Long ones open on demand.

function openFacts(root) {
  return {
    update(component) {
      reconcile(root, (component.data && component.data.lines) || [], (line, index) => `${index}|${line.label}`, () => {
        const node = el("div"), body = el("div"), more = el("details");
        more.append(el("summary", "", "more"), el("pre"));
        body.append(el("div", "tv-fact-value"), more);
        node.append(el("div", "tv-fact-label"), body);
        return node;
      }, (node, line) => {
        const [label, body] = node.children;
        const [value, more] = body.children;
        const name = upright(line.label);
        if (label.textContent !== name) label.textContent = name;
        setText(value, line.value);
        more.hidden = !line.full;
        setText(more.children[1], line.full);
        const tone = line.tone === "critical" || line.tone === "warning" ? ` tv-tone-${line.tone}` : "";
        setClass(node, `tv-fact${line.is_verbatim ? " tv-verbatim" : ""}${tone}`);
      });
    },
    close() {},
  };
}

export default function (component) { return mount(component, ".tv-facts-list", openFacts); }
