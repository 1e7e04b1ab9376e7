// Put in front of every component's script by assets.py. Nothing here ever turns data into markup.

// A component's state lives with its own root element: two instances on a page share nothing.
const instances = new WeakMap();

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A character that turns the direction of writing in a text from outside turns our own words beside it, too.
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function upright(text) { return String(text).replace(TURNS, "\ufffd"); }

// A number and its unit, which belong on one line. No character of the text is changed for it: what is copied out of a page is what was said.
const AMOUNT = /(?<![\w.,])[0-9][0-9.,]{0,15} (?:ms|s|min|h|d|GPU-h|%|°C|[kMW]?W|[kKMGTPE]i?B|[kKMGT](?: tokens)?)(?:\/s)?(?![\w-])/g;

function unbroken(text) {
  const pieces = [];
  let done = 0;
  for (const found of text.matchAll(AMOUNT)) {
    pieces.push(text.slice(done, found.index), el("span", "tv-amount", found[0]));
    done = found.index + found[0].length;
  }
  return [...pieces, text.slice(done)].filter((piece) => piece !== "");
}

// Writing only what differs keeps focus, selection and a press in progress.
function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : upright(text);
  if (node.textContent !== wanted) node.replaceChildren(...unbroken(wanted));
  node.hidden = wanted === "";
}

function setClass(node, className) {
  if (node.className !== className) node.className = className;
}

// Streamlit gives colours, not the name of the theme: a dark background means the dark palette.
function markTheme(root) {
  const colour = getComputedStyle(root).getPropertyValue("--st-background-color").trim();
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = colour || "#ffffff";
  const hex = probe.fillStyle.startsWith("#") ? probe.fillStyle : "#ffffff";
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const theme = 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
  if (root.dataset.tvTheme !== theme) root.dataset.tvTheme = theme;
  return theme;
}

// open(root) makes an instance {update(component), close()}; the same one serves all refreshes of its element.
function mount(component, selector, open) {
  const root = component.parentElement.querySelector(selector);
  if (!root) return undefined;
  markTheme(root);
  let instance = instances.get(root);
  if (!instance) {
    instance = open(root, component);
    instances.set(root, instance);
  }
  instance.update(component);
  return () => {
    if (instances.get(root) !== instance) return;
    instances.delete(root);
    instance.close();
    root.replaceChildren();
  };
}

// Keeps `holder`'s children in step with `items` by key: kept nodes stay the same nodes.
function reconcile(holder, items, keyOf, create, fill) {
  const old = new Map([...holder.children].map((node) => [node.tvKey, node]));
  let at = holder.firstElementChild;
  items.forEach((item, index) => {
    const key = keyOf(item, index);
    let node = old.get(key);
    if (node) old.delete(key);
    else {
      node = create(item);
      node.tvKey = key;
    }
    if (node !== at) holder.insertBefore(node, at);
    else at = at.nextElementSibling;
    fill(node, item, index);
  });
  for (const node of old.values()) node.remove();
}
