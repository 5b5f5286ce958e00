// On a narrow screen the menu is one line that scrolls: this page's word comes into view, so does the one that the
// keyboard comes to, and the line says on which side it goes on.
const NEARLY = 4;

export function followMenu(menu) {
  const tell = () => {
    const left = menu.scrollWidth - menu.clientWidth - menu.scrollLeft;
    menu.dataset.more = [menu.scrollLeft > NEARLY && "before", left > NEARLY && "after"].filter(Boolean).join(" ");
  };
  const bringIntoView = (word) => word?.scrollIntoView({ block: "nearest", inline: "center" });
  menu.addEventListener("scroll", tell, { passive: true });
  menu.addEventListener("focusin", (event) => bringIntoView(event.target));
  document.addEventListener("palyra:refreshed", tell);
  new ResizeObserver(tell).observe(menu);
  bringIntoView(menu.querySelector("[aria-current=page]"));
}
