// The verdict. Its clock runs in the browser, so that a page whose server is gone does not look live.

const TONES = ["critical", "warning", "paused", "info", "ok"];

const WORDS = { age: "data {} old", none: "no data yet", alone: "no answer from the dashboard for {}", since: "since {}", more: "… all of it", less: "less", units: ["s", "min", "h", "days"] };

function ageText(seconds, units) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} ${units[0]}`;
  if (s < 7200) return `${Math.floor(s / 60)} ${units[1]}`;
  return s < 172800 ? `${Math.floor(s / 3600)} ${units[2]}` : `${Math.floor(s / 86400)} ${units[3]}`;
}

// A press on the page that is being left, before the next one is there, would be answered for neither. It waits for the next page's band, or
// until it is clear that none comes.
const LEAVING_MS = 5000;

function hearOfLeaving() {
  if (window.tvHearsOfLeaving) return;
  window.tvHearsOfLeaving = true;
  window.addEventListener("click", (event) => {
    const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement);
    const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.target === "_blank" || link.origin !== location.origin || link.pathname === location.pathname) return;
    window.tvLeaving = { path: location.pathname, since: Date.now(), press: null };
  }, true);
}

// True while the page is being left: then the press is kept.
function keptForNext(id) {
  const leaving = window.tvLeaving;
  if (!leaving || leaving.path !== location.pathname || Date.now() - leaving.since > LEAVING_MS) return false;
  leaving.press = id;
  return true;
}

// The id of a press that was kept, once, as soon as the next page is there or no longer to be expected.
function takeKept() {
  const leaving = window.tvLeaving;
  if (!leaving || (leaving.path === location.pathname && Date.now() - leaving.since <= LEAVING_MS)) return null;
  window.tvLeaving = null;
  return leaving.press;
}

// A page that is being laid out may move a button between the press of a finger and its release, or draw it anew; the browser then clicks on
// neither. What was pressed is what was meant, unless the finger itself moved away.
const STILL_PX = 8;

function nameOf(button) {
  const keyed = button.closest("[class*='st-key-']");
  const key = keyed ? [...keyed.classList].find((one) => one.startsWith("st-key-")) : "";
  return `${key} ${button.textContent}`;
}

function drawnAnew(name) {
  const same = [...document.querySelectorAll("button")].filter((one) => !one.disabled && nameOf(one) === name);
  return same.length === 1 ? same[0] : null;
}

function hearOfPresses() {
  if (window.tvHearsOfPresses) return;
  window.tvHearsOfPresses = true;
  let pressed = null;
  const isStill = (event) => Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) <= STILL_PX;
  window.addEventListener("pointerdown", (event) => {
    const button = event.composedPath().find((node) => node instanceof HTMLButtonElement);
    pressed = button && event.isPrimary && event.button === 0 ? { button, name: nameOf(button), x: event.clientX, y: event.clientY } : null;
  }, true);
  window.addEventListener("pointerup", (event) => {
    if (!event.isTrusted || !pressed || pressed.button.isConnected) return;
    const button = isStill(event) ? drawnAnew(pressed.name) : null;
    pressed = null;
    if (button) button.click();
  }, true);
  window.addEventListener("click", (event) => {
    if (!event.isTrusted || !pressed) return;
    const isElsewhere = !event.composedPath().some((node) => node instanceof HTMLButtonElement || node instanceof HTMLAnchorElement);
    const button = isElsewhere && isStill(event) && pressed.button.isConnected ? pressed.button : null;
    pressed = null;
    if (button) button.click();
  }, true);
}

// Put in as it is: a "$" in it means nothing.
function filled(form, text) { return form.replace("{}", () => text); }

function openBand(root) {
  const title = el("div", "tv-title"), word = el("span", "tv-word"), headline = el("span", "tv-headline");
  const said = el("span", "tv-said"), more = el("button", "tv-more");
  const text = el("div", "tv-text"), automatic = el("span", "tv-automatic");
  const decision = el("span", "tv-decision"), decisionLabel = el("b", "", "Your decision: "), decisionText = el("span");
  const facts = el("div", "tv-facts"), factText = el("span"), age = el("span", "tv-age"), contact = el("span", "tv-contact");
  const actions = el("div", "tv-actions");
  said.append(word, headline);
  title.append(said);
  more.type = "button";
  more.addEventListener("click", () => { isOpen = !isOpen; fold(); });
  decision.append(decisionLabel, decisionText);
  text.append(automatic, decision);
  facts.append(factText, age, contact);
  root.append(title, actions, text, facts);
  root.setAttribute("role", "status");
  root.setAttribute("aria-live", "polite");
  age.setAttribute("aria-live", "off");
  contact.setAttribute("aria-live", "assertive");

  let api, view = {}, words = WORDS, receivedAt = Date.now(), isOpen = false;

  // A sentence of many lines would push the buttons and the numbers off a phone: it opens on demand, and stands whole on its incident.
  function fold() {
    const isFolded = Boolean(view.is_foldable) && !isOpen;
    setClass(said, `tv-said${isFolded ? " tv-folded" : ""}`);
    const isCut = isFolded && said.scrollHeight > said.clientHeight + 4;
    if (!isCut && !isOpen) more.remove(); else if (!more.isConnected) title.append(more);
    setText(more, isOpen ? words.less : words.more);
    more.setAttribute("aria-expanded", String(isOpen));
  }
  const observer = new ResizeObserver(fold);
  observer.observe(root);

  function sendKept() {
    const kept = takeKept();
    if (kept && (view.actions || []).some((one) => one.id === kept && !one.is_disabled)) api.setTriggerValue("action", kept);
  }

  function tick() {
    sendKept();
    const since = (Date.now() - receivedAt) / 1000;
    const isKnown = typeof view.data_age_s === "number";
    const seconds = isKnown ? view.data_age_s + since : 0;
    const isStale = !isKnown || seconds > (view.stale_after_s || 30);
    const isAlone = since > Math.max(10, 5 * (view.refresh_s || 2));
    setText(age, isKnown ? `${isStale ? "▲ " : ""}${filled(words.age, ageText(seconds, words.units))}` : `▲ ${words.none}`);
    setText(contact, isAlone ? `▲ ${filled(words.alone, ageText(since, words.units))}` : "");
    // Whoever has many tabs open sees in the tab which run needs somebody.
    if (view.tab) {
      const tab = upright(`${isAlone ? "▲ no answer · " : ""}${view.tab}`);
      if (document.title !== tab) document.title = tab;
    }
    const tone = TONES.includes(view.tone) ? view.tone : "info";
    const isThin = view.is_thin === undefined || view.is_thin === null
      ? ["ok", "info"].includes(tone) && !view.decision && !(view.actions || []).length : Boolean(view.is_thin);
    setClass(root, `tv-band tv-tone-${tone}${isThin ? " tv-thin" : ""}${isStale || isAlone ? " tv-stale" : ""}`);
  }

  function fillButton(node, action) {
    setText(node, action.label || action.id);
    const first = (view.actions || []).find((one) => one.is_primary && !one.is_disabled);
    setClass(node, `tv-button${first && first.id === action.id ? " tv-primary" : ""}`);
    node.disabled = Boolean(action.is_disabled);
    node.title = upright(action.help || action.label || "");
  }

  hearOfLeaving();
  hearOfPresses();
  const timer = setInterval(tick, 1000);
  return {
    update(component) {
      api = component;
      view = component.data || {};
      words = { ...WORDS, ...view.words };
      receivedAt = Date.now();
      heard((view.refresh_s || 2) * 1000);
      setText(word, view.word);
      if (headline.textContent !== view.headline) isOpen = false;
      setText(headline, view.headline);
      setText(automatic, view.automatic);
      setText(decisionText, view.decision);
      decision.hidden = !view.decision;
      text.hidden = !view.automatic && !view.decision;
      setText(factText, [view.since ? filled(words.since, view.since) : "", ...(view.facts || [])].filter(Boolean).join(" · "));
      reconcile(actions, view.actions || [], (action) => action.id, (action) => {
        const button = el("button");
        button.type = "button";
        button.addEventListener("click", () => { if (!keptForNext(action.id)) api.setTriggerValue("action", action.id); });
        return button;
      }, fillButton);
      actions.hidden = !(view.actions || []).length;
      tick();
      fold();
    },
    close() { clearInterval(timer); observer.disconnect(); },
  };
}

export default function (component) { return mount(component, ".tv-band", openBand); }
