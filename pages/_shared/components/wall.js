// The node wall on one canvas: pale where all is well, a glyph and a colour where not.

const SIMULATED = 0x80;
// state: colour role, glyph, strength of the colour
const LOOK = {
  ok: ["pale", "", 1], no_gpu: ["pale", "", 0.55], warm: ["warning", "~", 0.55], warn: ["warning", "!", 1], fail: ["critical", "×", 1],
  lost: ["critical", "×", 1], silent: ["faint", "?", 1], drained: ["info", "–", 0.5], unknown: ["faint", "?", 0.7],
};

function decode(text) { return Uint8Array.from(atob(text || ""), (c) => c.charCodeAt(0)); }

// Names stay in the page: they travel once, whatever is drawn again or mounted anew.
function nameBook() {
  if (!window.tvNodeNames) window.tvNodeNames = new Map();
  return window.tvNodeNames;
}

function openWall(root) {
  const bar = el("div", "tv-wall-bar"), legend = el("div", "tv-legend"), level = el("button", "tv-level");
  const frameBox = el("div", "tv-wall-frame"), canvas = el("canvas"), tip = el("div", "tv-tip");
  level.type = "button";
  bar.append(legend);
  frameBox.append(canvas, tip);
  root.append(bar, frameBox);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  tip.setAttribute("role", "status");
  tip.hidden = true;

  let api, data, names = [], groups = [], tiles = new Uint8Array(), gpus = new Uint8Array();
  let boxes = [], headings = [], totalHeight = 0, at = -1, showsGpus = false, reported = null, drawn = "", frame = 0;

  function state(index) { return data.states[tiles[index] & 0x7f] || "unknown"; }

  function place(width) {
    boxes = [];
    headings = [];
    const count = tiles.length;
    const perNode = data.gpus_per_node;
    let tile = count <= 24 ? 26 : count <= 200 ? 16 : count <= 800 ? 12 : 9;
    let stripColumns = Infinity;
    if (data.compact) {
      const rows = Math.min(8, Math.ceil(count / 16));
      stripColumns = Math.ceil(count / Math.max(rows, 1));
      tile = Math.max(4, Math.min(14, width / stripColumns - 1));
    }
    const gap = tile >= 12 && !data.compact ? 2 : 1;
    const wide = showsGpus ? Math.min(4, perNode) * 8 + 3 : tile;
    const high = showsGpus ? Math.ceil(perNode / 4) * 10 + 3 : tile;
    const isGrouped = !data.compact && new Set(groups).size > 1 && new Set(groups).size <= count / 2;
    let x = 0, y = 0, blockHigh = 0;
    for (let start = 0; start < count;) {
      let end = count;
      if (isGrouped) for (end = start + 1; end < count && groups[end] === groups[start];) end += 1;
      const size = end - start;
      const most = Math.max(1, Math.floor((width + gap) / (wide + gap) + 1e-6));
      const columns = isGrouped ? Math.min(most, evenColumns(size)) : Math.min(most, stripColumns);
      const titleHigh = isGrouped ? 15 : 0;
      const blockWide = Math.max(Math.min(columns, size) * (wide + gap), isGrouped ? Math.min(groups[start].length * 6.4, 110) : 0);
      if (x > 0 && x + blockWide > width) { x = 0; y += blockHigh + 8; blockHigh = 0; }
      if (isGrouped) headings.push([groups[start], x, y + 10, blockWide]);
      for (let index = start; index < end; index += 1) {
        const k = index - start;
        boxes.push([x + (k % columns) * (wide + gap), y + titleHigh + Math.floor(k / columns) * (high + gap), wide, high]);
      }
      blockHigh = Math.max(blockHigh, titleHigh + Math.ceil(size / columns) * (high + gap));
      x += blockWide + 12;
      start = end;
    }
    totalHeight = Math.max(y + blockHigh, tile);
  }

  // About twice as wide as high, with full rows where the number allows it.
  function evenColumns(size) {
    const least = Math.max(Math.ceil(Math.sqrt(size * 2)), Math.min(size, 4));
    for (let columns = least; columns <= 16; columns += 1) if (size % columns === 0) return columns;
    return least;
  }

  function paint(pen, name, x, y, wide, high, colours) {
    const [role, glyph, strength] = LOOK[name] || LOOK.unknown;
    pen.globalAlpha = strength;
    pen.fillStyle = colours[role];
    pen.beginPath();
    pen.roundRect(x, y, wide, high, Math.min(2, wide / 4));
    pen.fill();
    pen.globalAlpha = 1;
    if (name === "silent") {
      pen.save();
      pen.clip();
      pen.strokeStyle = colours.card;
      pen.lineWidth = 1.4;
      pen.beginPath();
      for (let k = -high; k < wide; k += 4) { pen.moveTo(x + k, y + high); pen.lineTo(x + k + high, y); }
      pen.stroke();
      pen.restore();
    }
    if (glyph && wide >= 7) {
      pen.fillStyle = name === "warm" || name === "drained" || name === "unknown" ? colours.ink : colours.onAccent;
      if (name === "silent") pen.fillStyle = colours.ink;
      pen.font = `700 ${Math.min(Math.min(wide, high) * 0.85, 15)}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(glyph, x + wide / 2, y + high / 2 + 0.5);
    }
  }

  function draw() {
    if (!data || names.length !== tiles.length) return;
    const theme = markTheme(root);
    const width = Math.max(frameBox.clientWidth || root.clientWidth, 120);
    const signature = [theme, width, data.tiles, showsGpus ? data.gpu_tiles : "", data.names_hash, data.compact, at].join("|");
    if (signature === drawn) return;
    drawn = signature;
    place(width);
    const ratio = window.devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${totalHeight}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(totalHeight * ratio);
    const style = getComputedStyle(root);
    const colours = Object.fromEntries(["pale", "warning", "critical", "faint", "info", "ink", "dim", "card", "line"].map((role) => [role, style.getPropertyValue(`--tv-${role}`).trim()]));
    colours.onAccent = style.getPropertyValue("--tv-on-accent").trim();
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, totalHeight);
    boxes.forEach(([x, y, wide, high], index) => {
      if (showsGpus) {
        for (let g = 0; g < data.gpus_per_node; g += 1) {
          const code = gpus[index * data.gpus_per_node + g];
          const name = data.states[code];
          if (name) paint(pen, name, x + 1 + (g % 4) * 8, y + 1 + Math.floor(g / 4) * 10, 7, 9, colours);
        }
        if (state(index) !== "ok" || tiles[index] & SIMULATED) outline(pen, x, y, wide, high, colours[state(index) === "ok" ? "line" : (LOOK[state(index)] || LOOK.unknown)[0]]);
      } else {
        // Too small for a glyph: what needs a look stands out by size, not by colour alone.
        const grow = data.compact && wide < 9 && ["warn", "fail", "lost"].includes(state(index)) ? 1.5 : 0;
        paint(pen, state(index), x - grow, y - grow, wide + 2 * grow, high + 2 * grow, colours);
        if (tiles[index] & SIMULATED && !data.compact) { pen.setLineDash([2, 2]); outline(pen, x, y, wide, high, colours.faint); pen.setLineDash([]); }
      }
      if (index === at) { pen.lineWidth = 2; outline(pen, x - 1, y - 1, wide + 2, high + 2, colours.ink); pen.lineWidth = 1; }
    });
    pen.fillStyle = colours.dim;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    for (const [text, x, y, most] of headings) pen.fillText(text, x, y, most);
  }

  function outline(pen, x, y, wide, high, colour) {
    pen.strokeStyle = colour;
    pen.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
  }

  function stateText(name) { return ((data.words || {}).states || {})[name] || name.replace("_", " "); }

  function describe(index) {
    const isSimulated = Boolean(tiles[index] & SIMULATED);
    return [names[index], stateText(state(index)), data.texts[String(index)], isSimulated ? stateText("simulated") : ""].filter(Boolean).join(" · ");
  }

  function select(index) {
    at = index;
    tip.hidden = index < 0;
    if (index >= 0) {
      const [x, y, wide, high] = boxes[index];
      setText(tip, describe(index));
      const room = frameBox.clientWidth;
      tip.style.left = `${Math.max(0, Math.min(x, room - Math.min(tip.offsetWidth, room)))}px`;
      tip.style.top = `${y + high + 5}px`;
    }
    draw();
  }

  function hit(event) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    return boxes.findIndex(([x, y, wide, high]) => px >= x - 1 && px <= x + wide + 1 && py >= y - 1 && py <= y + high + 1);
  }

  // Up and down go to the nearest tile of the next row, whatever block it belongs to.
  function neighbour(key) {
    if (at < 0) return 0;
    if (key === "ArrowRight") return Math.min(at + 1, boxes.length - 1);
    if (key === "ArrowLeft") return Math.max(at - 1, 0);
    const [x, y] = boxes[at];
    const sign = key === "ArrowDown" ? 1 : -1;
    let best = at, nearest = Infinity;
    boxes.forEach(([bx, by], index) => {
      const down = (by - y) * sign;
      if (down > 0.5 && down * 4 + Math.abs(bx - x) < nearest) { nearest = down * 4 + Math.abs(bx - x); best = index; }
    });
    return best;
  }

  function onKey(event) {
    if (event.key.startsWith("Arrow")) { event.preventDefault(); select(neighbour(event.key)); }
    else if (event.key === "Enter" && at >= 0 && !data.is_static) { event.preventDefault(); api.setTriggerValue("pick", names[at]); }
    else if (event.key === "Escape") select(-1);
  }

  canvas.addEventListener("pointermove", (event) => select(hit(event)));
  canvas.addEventListener("pointerleave", () => select(-1));
  canvas.addEventListener("blur", () => select(-1));
  canvas.addEventListener("click", (event) => { const index = hit(event); if (index >= 0 && !data.is_static) api.setTriggerValue("pick", names[index]); });
  canvas.addEventListener("keydown", onKey);
  level.addEventListener("click", () => { showsGpus = !showsGpus; fillBar(); draw(); });
  const watcher = new ResizeObserver(() => { cancelAnimationFrame(frame); frame = requestAnimationFrame(draw); });
  watcher.observe(frameBox);

  function fillBar() {
    const counts = Object.entries(data.counts).sort((a, b) => data.states.indexOf(a[0]) - data.states.indexOf(b[0]));
    bar.hidden = Boolean(data.compact) && !data.is_static;
    if (!data.is_static && !level.isConnected) bar.append(level);
    setText(level, showsGpus ? "show nodes" : "show GPUs");
    level.hidden = !data.gpus_per_node;
    const items = counts.map(([name, count]) => [name, `${count.toLocaleString("en-US")} ${stateText(name)}`]);
    if (data.simulated) items.push(["simulated", `${data.simulated.toLocaleString("en-US")} ${stateText("simulated")}`]);
    reconcile(legend, items, (item) => item[0], (item) => {
      const known = item[0] in LOOK || item[0] === "simulated" ? item[0] : "unknown";
      const node = el("span", "tv-item");
      node.append(el("i", `tv-swatch tv-swatch-${known}`, (LOOK[known] || ["", ""])[1]), el("span"));
      return node;
    }, (node, item) => setText(node.lastChild, item[1]));
    const counted = items.map((item) => item[1]).join(", ") || "none reports";
    const label = data.is_static ? `${tiles.length}: ${counted}` : `${tiles.length} nodes: ${counted}. Arrow keys move, Enter opens a node.`;
    if (canvas.getAttribute("aria-label") !== label) canvas.setAttribute("aria-label", label);
  }

  return {
    update(component) {
      api = component;
      data = component.data;
      const book = nameBook();
      if (data.names) {
        book.delete(data.names_hash);
        book.set(data.names_hash, [data.names, data.groups || []]);
        if (book.size > 8) book.delete(book.keys().next().value);
      }
      const held = book.get(data.names_hash);
      const tell = held ? data.names_hash : "";
      if ((data.names || !held) && reported !== tell) { reported = tell; api.setStateValue("names", tell); }
      if (!held) return;
      reported = tell;
      [names, groups] = held;
      tiles = decode(data.tiles);
      gpus = decode(data.gpu_tiles);
      if (at >= tiles.length) at = -1;
      frameBox.style.maxHeight = data.max_height ? `${data.max_height}px` : "";
      frameBox.style.overflowY = data.max_height ? "auto" : "visible";
      fillBar();
      draw();
      if (at >= 0) setText(tip, describe(at));
    },
    close() { watcher.disconnect(); cancelAnimationFrame(frame); },
  };
}

export default function (component) { return mount(component, ".tv-wall", openWall); }
