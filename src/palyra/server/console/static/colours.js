// Light, dark, or as the system has it: one button goes round.
const ROUND = ["system", "light", "dark"];

export function themeButton(button) {
  if (!button) return;
  const current = () => document.documentElement.dataset.theme ?? "system";
  const label = () => {
    button.querySelector("[data-theme-name]").textContent = current();
    button.setAttribute("aria-label", `Theme: ${current()}. Change`);
  };
  button.addEventListener("click", () => {
    const next = ROUND[(ROUND.indexOf(current()) + 1) % ROUND.length];
    if (next === "system") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("palyra.theme");
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("palyra.theme", next);
    }
    label();
  });
  label();
}
