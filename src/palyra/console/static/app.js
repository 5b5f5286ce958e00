// The entry of every page: forms that write, news that refresh, times that count, the choice of colours.
import { watchForms } from "./forms.js";
import { listen } from "./live.js";
import { tellTimes } from "./times.js";
import { themeButton } from "./colours.js";

watchForms(document);
themeButton(document.querySelector("[data-theme-button]"));
tellTimes(document);
if (document.body.dataset.live !== undefined) listen();
document.documentElement.dataset.ready = "";
