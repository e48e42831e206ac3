/* A button beside every block of code that copies its text, without the prompts of a shell. */
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
            const text = pre.textContent.replace(/^(\$|>>>|\.\.\.) /gm, "");
            await navigator.clipboard.writeText(text);
            button.textContent = "Copied";
            setTimeout(() => { button.textContent = "Copy"; }, 1500);
        });
        block.append(button);
    }
});
