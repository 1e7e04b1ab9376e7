// "Check in this order": what was looked at, what was found, what is not known here.

const MEANING = { "!": "evidence found", "–": "looked, nothing there", "?": "not known here" };

function openChecks(root) {
  return {
    update(component) {
      reconcile(root, (component.data && component.data.checks) || [], (_, index) => index, () => {
        const node = el("li");
        const mark = el("span", "tv-mark"), body = el("div", "tv-body"), line = el("div", "tv-line");
        mark.setAttribute("role", "img");
        line.append(el("span", "tv-layer"), el("b"));
        body.append(line, el("div", "tv-evidence"));
        node.append(mark, body);
        return node;
      }, (node, check) => {
        const mark = check.mark in MEANING ? check.mark : "?";
        const [markNode, body] = node.children;
        setText(markNode, mark);
        markNode.setAttribute("aria-label", MEANING[mark]);
        markNode.title = MEANING[mark];
        setText(body.children[0].children[0], check.layer);
        setText(body.children[0].children[1], check.title);
        setText(body.children[1], check.evidence);
        setClass(node, mark === "!" ? "tv-hit" : mark === "?" ? "tv-unknown" : "tv-clear");
      });
    },
    close() {},
  };
}

export default function (component) { return mount(component, ".tv-checks", openChecks); }
