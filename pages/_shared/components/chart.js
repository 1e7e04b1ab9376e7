// Curves. Plotly.react on one and the same node, so that zoom and hover outlive every refresh.

const CONFIG = { responsive: false, displaylogo: false, displayModeBar: false, doubleClick: false, scrollZoom: false };
const CHARACTER_PX = 6.2;
const WIDE_PX = 11;
const GAP_PX = 8;
const CLICKABLE = new Set(["finding", "checkpoint", "annotation"]);

// One script tag a page; a failed load is forgotten, so that the next refresh tries again.
function loadPlotly(url) {
  const page = window;
  if (page.tvPlotly && page.tvPlotly.url === url) return page.tvPlotly.promise;
  const promise = new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => (page.Plotly ? resolve(page.Plotly) : reject(new Error("it holds no Plotly")));
    script.onerror = () => reject(new Error("the server did not deliver it"));
    document.head.appendChild(script);
  });
  page.tvPlotly = { url, promise };
  promise.catch(() => { if (page.tvPlotly && page.tvPlotly.promise === promise) page.tvPlotly = undefined; });
  return promise;
}

function toNumber(value) {
  if (typeof value === "number") return value;
  const text = String(value);
  return /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? Number(text) : Date.parse(text.replace(" ", "T") + (text.length > 10 ? "Z" : ""));
}

// The same greedy choice as trainvitals/charts/labels.py, with the width and the range really shown.
function fitLabels(annotations, range, width) {
  const taken = { top: [[0, 70]], bottom: [] };
  const labels = annotations.filter((one) => one.name && one.name.startsWith("label|"));
  const priority = (one) => Number(one.name.split("|")[2]);
  for (const one of [...labels].sort((a, b) => priority(a) - priority(b) || b.x - a.x)) {
    const at = ((one.x - range[0]) / (range[1] - range[0] || 1)) * width;
    const size = [...one.text.replace(/&\w+;/g, "x")].reduce((sum, letter) => sum + (letter > "\u2e7f" ? WIDE_PX : CHARACTER_PX), 0);
    const [start, end] = one.xanchor === "right" ? [at - size, at] : [at, at + size];
    const lane = taken[one.name.split("|")[1]] || [];
    one.visible = start >= 0 && end <= width && !lane.some(([s, e]) => start < e + GAP_PX && s - GAP_PX < end);
    if (one.visible) lane.push([start, end]);
  }
}

// The points on screen, with what each stands for. Numbers and names of metrics only: nothing in it can be a formula.
function csvText(plot) {
  const axis = plot._fullLayout.xaxis, isTime = axis.type === "date";
  const [from, to] = axis.range.map(toNumber);
  const cell = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(7))) : "");
  const lines = [`${isTime ? "time" : "step"},metric,attempt,mean,low,high`];
  for (const trace of plot._fullData) {
    const meta = trace.meta || {};
    if (meta.kind !== "series" || !trace.hovertemplate || !/^[a-z][a-z0-9_]*$/.test(meta.metric)) continue;
    for (let i = 0; i < trace.x.length; i += 1) {
      const x = toNumber(trace.x[i]), pair = trace.customdata ? trace.customdata[i] : [trace.y[i], trace.y[i]];
      if (x < from || x > to || !Number.isFinite(x)) continue;
      lines.push([isTime ? new Date(x).toISOString() : x, meta.metric, meta.attempt, cell(trace.y[i]), cell(pair[0]), cell(pair[1])].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

function saveText(text, name) {
  const link = el("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function openChart(root) {
  const plot = el("div", "tv-plot");
  const live = el("button", "tv-live", "back to live (L)");
  const error = el("div", "tv-error");
  const foot = el("div", "tv-chart-foot"), save = el("button", "tv-csv", "Save these points as CSV");
  live.type = "button";
  live.hidden = true;
  save.type = "button";
  foot.append(save);
  error.hidden = true;
  error.setAttribute("role", "alert");
  plot.setAttribute("role", "img");
  root.append(plot, error);

  let api, data, Plotly, range = null, revision = null, liveCount = 0, drawn = "", figure = null, figureHash = "";
  let isClosed = false, isDrawing = false, isWaiting = false, isPressed = false, frame = 0, seenWidth = 0;

  function width() { return root.clientWidth || 600; }

  function report(value) {
    range = value;
    live.hidden = range === null;
    api.setStateValue("range", value);
  }

  function goLive() {
    if (range === null) return;
    liveCount += 1;
    report(null);
    draw();
  }

  function layoutNow() {
    const layout = structuredClone(figure.layout);
    const isNarrow = width() < 480;
    layout.height = data.height;
    layout.width = width();
    layout.autosize = false;
    layout.font.family = getComputedStyle(root).fontFamily;
    layout.hoverlabel.font.family = layout.font.family;
    layout.uirevision = revision;
    layout.dragmode = data.is_static || matchMedia("(pointer: coarse)").matches ? false : layout.dragmode;
    if (data.is_static) layout.xaxis.fixedrange = true;
    layout.xaxis.uirevision = `${revision}/${liveCount}`;
    if (range) layout.xaxis.range = [...range];
    if (isNarrow) { layout.xaxis.nticks = 4; layout.margin.l = 46; layout.margin.r = 6; }
    fitLabels(layout.annotations || [], layout.xaxis.range.map(toNumber), width() - layout.margin.l - layout.margin.r);
    return layout;
  }

  async function draw() {
    if (isDrawing || isPressed) { isWaiting = true; return; }
    isDrawing = true;
    try {
      try {
        Plotly = await loadPlotly(data.url);
      } catch (reason) {
        fail(`The chart library could not be loaded from ${data.url}: ${reason.message}. It is tried again at the next refresh.`);
        return;
      }
      if (isClosed) return;
      if (figureHash !== data.hash) { figure = JSON.parse(data.figure); figureHash = data.hash; }
      const wanted = data.uirevision || figure.layout.uirevision || "";
      if (revision !== null && revision !== wanted && range) { liveCount += 1; revision = wanted; report(null); }
      if (revision === null && Array.isArray(data.range)) { range = data.range; live.hidden = false; }
      revision = wanted;
      const signature = [data.hash, data.height, revision, liveCount, String(range), width()].join("|");
      if (signature === drawn) return;
      const isFirst = drawn === "";
      await Plotly.react(plot, figure.data, layoutNow(), CONFIG);
      drawn = signature;
      seenWidth = width();
      error.hidden = true;
      if (isFirst && !isClosed) { plot.on("plotly_relayout", onRelayout); plot.on("plotly_doubleclick", goLive); }
    } catch (reason) {
      fail(`The chart could not be drawn: ${reason.message}`);
    } finally {
      isDrawing = false;
      if (isWaiting && !isClosed && !isPressed) { isWaiting = false; draw(); }
    }
  }

  function fail(text) { setText(error, text); }

  function onRelayout(change) {
    const pair = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (pair[0] === undefined || pair[1] === undefined) return;
    const asked = pair.map(toNumber);
    if (!asked.every(Number.isFinite) || (range && asked[0] === range[0] && asked[1] === range[1])) return;
    report(asked);
    draw();
  }

  // Plotly's own click event names every curve at that x; what was meant is the nearest marker.
  function markerAt(event) {
    const full = plot._fullLayout;
    if (!full || !plot.calcdata) return null;
    const box = plot.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = null, nearest = event.pointerType === "touch" ? 24 : 14;
    for (const points of plot.calcdata) {
      const trace = points[0] && points[0].trace;
      if (!trace || !trace.meta || !CLICKABLE.has(trace.meta.kind)) continue;
      const xa = full.xaxis, ya = full[`yaxis${trace.yaxis === "y" || !trace.yaxis ? "" : trace.yaxis.slice(1)}`];
      points.forEach((point, index) => {
        const id = trace.customdata[point.i === undefined ? index : point.i];
        const distance = Math.hypot(xa._offset + xa.c2p(point.x) - px, ya._offset + ya.c2p(point.y) - py);
        if (id && distance < nearest) { nearest = distance; best = { kind: trace.meta.kind, id, metric: trace.meta.metric, x: point.x }; }
      });
    }
    return best;
  }

  function onDown(event) {
    if (event.button !== 0) return;
    isPressed = true;
    const { clientX, clientY } = event;
    const onUp = (up) => {
      document.removeEventListener("pointerup", onUp, true);
      document.removeEventListener("pointercancel", onUp, true);
      isPressed = false;
      if (up.type === "pointerup" && Math.hypot(up.clientX - clientX, up.clientY - clientY) < 5) {
        const hit = data.is_static ? null : markerAt(up);
        if (hit) api.setTriggerValue("click", hit);
      }
      // Plotly ends its drag in the mouseup that follows; only then may the node be drawn again.
      if (isWaiting) setTimeout(() => { isWaiting = false; if (!isClosed) draw(); }, 60);
    };
    document.addEventListener("pointerup", onUp, true);
    document.addEventListener("pointercancel", onUp, true);
  }

  function onMove(event) { if (!isPressed && !data.is_static) plot.classList.toggle("tv-on-marker", markerAt(event) !== null); }

  function onKey(event) {
    if (event.key !== "l" && event.key !== "L") return;
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || (at && at.closest && at.closest("input, textarea, select, [contenteditable=true]"))) return;
    goLive();
  }

  const watcher = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => { if (!isClosed && data && drawn && width() !== seenWidth) draw(); });
  });
  watcher.observe(root);
  plot.addEventListener("pointerdown", onDown, true);
  plot.addEventListener("pointermove", onMove);
  live.addEventListener("click", goLive);
  save.addEventListener("click", () => { if (drawn) saveText(csvText(plot), "curves.csv"); });
  document.addEventListener("keydown", onKey);

  return {
    update(component) {
      api = component;
      data = component.data;
      if (!data.is_static && !live.isConnected) root.insertBefore(live, error);
      if (Boolean(data.offers_csv) !== foot.isConnected) { if (foot.isConnected) foot.remove(); else root.append(foot); }
      plot.style.height = `${data.height}px`;
      if (plot.getAttribute("aria-label") !== data.label) plot.setAttribute("aria-label", data.label);
      draw();
    },
    close() {
      isClosed = true;
      watcher.disconnect();
      cancelAnimationFrame(frame);
      document.removeEventListener("keydown", onKey);
      if (Plotly) Plotly.purge(plot);
    },
  };
}

export default function (component) { return mount(component, ".tv-chart", openChart); }
