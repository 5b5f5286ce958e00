// The entry of every page: forms that write, commands to copy, news that refresh, times that count, the choice of colours.
import { announce, watchForms } from "./forms.js";
import { watchCopying } from "./copying.js";
import { listen } from "./live.js";
import { tellTimes } from "./times.js";
import { themeButton } from "./colours.js";

watchForms(document);
watchCopying(document);
themeButton(document.querySelector("[data-theme-button]"));
tellTimes(document);
if (document.body.dataset.live !== undefined) listen();
document.addEventListener("palyra:gone", () => announce("What this page shows is over or was removed."));
// On a narrow screen the menu is one line: this page's word comes into view.
// So does the word that the keyboard comes to.
const bringIntoView = (word) => word?.scrollIntoView({ block: "nearest", inline: "center" });
bringIntoView(document.querySelector("nav [aria-current=page]"));
document.getElementById("menu")?.addEventListener("focusin", (event) => bringIntoView(event.target));
document.documentElement.dataset.ready = "";
