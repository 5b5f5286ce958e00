// Before anything is painted: the colours that this person chose, if they chose any.
{
  const chosen = localStorage.getItem("palyra.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
