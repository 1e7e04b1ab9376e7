// How well a run saves: one point a row, with its verdict, its value, and the evidence below.

const VERDICTS = { good: ["✓", "good"], look: ["△", "look at it"], bad: ["▲", "bad"], unknown: ["?", "not known here"] };

function openJudgements(root) {
  return {
    update(component) {
      reconcile(root, (component.data && component.data.rows) || [], (row) => row.key, () => {
        const node = el("li"), mark = el("span", "tv-mark"), body = el("div", "tv-body"), line = el("div", "tv-line");
        mark.setAttribute("role", "img");
        line.append(el("b"), el("span", "tv-value"));
        body.append(line, el("div", "tv-evidence"));
        node.append(mark, body);
        return node;
      }, (node, row) => {
        const judgement = row.judgement in VERDICTS ? row.judgement : "unknown";
        const [glyph, meaning] = VERDICTS[judgement];
        const [mark, body] = node.children;
        setText(mark, glyph);
        mark.setAttribute("aria-label", meaning);
        mark.title = meaning;
        setText(body.children[0].children[0], row.title);
        setText(body.children[0].children[1], row.value);
        setText(body.children[1], row.why);
        setClass(node, `tv-judged-${judgement}`);
      });
    },
    close() {},
  };
}

export default function (component) { return mount(component, ".tv-judgements", openJudgements); }
