// A page that stands still although its server answers is loaded anew: nobody stands before a wall at night, and a white page says nothing.

// Streamlit's part of the page is gone for so long, or no news came for so long while somebody could see it; and never oftener than that.
const GONE_MS = 5000, DEAF_MS = 60000, ONCE_IN_MS = 120000, LOOK_MS = 2500, ANSWER_MS = 5000;

// Streamlit's page may stand at the server's base path or one below it.
async function answers() {
  const own = location.pathname.replace(/\/$/, ""), above = own.slice(0, own.lastIndexOf("/") + 1).replace(/\/$/, "");
  for (const base of new Set([above, own])) {
    try {
      const answer = await fetch(`${base}/_stcore/health`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (answer.ok && (await answer.text()).trim() === "ok") return true;
    } catch { /* no answer is an answer */ }
  }
  return false;
}

// A page that was loaded anew and is no better is given its time: it must not go on for ever.
function mayLoadAnew() {
  const [how] = performance.getEntriesByType("navigation");
  return !(how && how.type === "reload") || performance.now() >= ONCE_IN_MS;
}

function stayAlive() {
  if (window.tvStaysAlive) return;
  window.tvStaysAlive = true;
  let badMs = 0, lookedAt = Date.now(), isAsking = false;
  setInterval(async () => {
    const now = Date.now(), isGone = !document.querySelector("[data-testid=stApp]");
    const isDeaf = Boolean(document.querySelector(".tv-band")) && now - window.tvHeardAt > window.tvDeafMs;
    // A machine that slept, or a page in the background, has heard nothing either: it is given the time to hear again.
    const passedMs = Math.min(now - lookedAt, 2 * LOOK_MS);
    lookedAt = now;
    badMs = (isGone || isDeaf) && document.visibilityState === "visible" ? badMs + passedMs : 0;
    if (isAsking || badMs < (isGone ? GONE_MS : DEAF_MS / 2)) return;
    isAsking = true;
    if (mayLoadAnew() && (await answers())) location.reload();
    isAsking = false;
  }, LOOK_MS);
}

// Called with each news; refreshMs: how often there should be some.
function heard(refreshMs) {
  window.tvHeardAt = Date.now();
  window.tvDeafMs = Math.max(DEAF_MS, 10 * refreshMs);
  stayAlive();
}

