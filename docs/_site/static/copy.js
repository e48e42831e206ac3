/* A button beside every block of code that copies its text; of a session only what is typed. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
    if (!navigator.clipboard) return;
    for (const block of document.querySelectorAll("div.highlight")) {
        const pre = block.querySelector("pre");
        if (!pre) continue;
        const button = document.createElement("button");
        button.className = "copy";
        button.type = "button";
        button.textContent = "Copy";
        button.addEventListener("click", async () => {
            const typed = /^(\$|>>>|\.\.\.) /;
            const lines = pre.textContent.split("\n");
            const session = lines.filter((line) => typed.test(line)).map((line) => line.replace(typed, ""));
            const text = session.length > 0 ? session.join("\n") + "\n" : pre.textContent;
            await navigator.clipboard.writeText(text);
            button.textContent = "Copied";
            setTimeout(() => { button.textContent = "Copy"; }, 1500);
        });
        block.append(button);
    }
});
