// The entry of every page: forms that write, commands to copy, news that refresh, times that count, the choice of colours.
import { announce, watchForms } from "./forms.js";
import { watchCopying } from "./copying.js";
import { listen } from "./live.js";
import { watchMeanings } from "./meaning.js";
import { followMenu } from "./menu.js";
import { tellTimes } from "./times.js";
import { themeButton } from "./colours.js";

watchForms(document);
watchCopying(document);
watchMeanings(document);
themeButton(document.querySelector("[data-theme-button]"));
tellTimes(document);
if (document.body.dataset.live !== undefined) listen();
document.addEventListener("palyra:gone", () => announce("What this page shows is over or was removed."));
const menu = document.getElementById("menu");
if (menu) followMenu(menu);
document.documentElement.dataset.ready = "";
