// Instants as people say them. The exact one stays in the title; what is long ago is said by its date, which the
// server wrote.
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const LONG_AGO_SECONDS = 86400;
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });

export function tellTimes(root) {
  say(root);
  setInterval(() => say(document), 10_000);
}

export function say(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
    if (seconds < -LONG_AGO_SECONDS && time.dataset.ago === undefined) {
      time.textContent = `${time.dateTime.slice(0, 10)} ${time.dateTime.slice(11, 16)} UTC`;
      continue;
    }
    const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? UNITS.at(-1);
    time.textContent = words.format(Math.trunc(seconds / length), unit);
  }
}
