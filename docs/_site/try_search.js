/* Fails unless the site's own search finds the right page first. Usage: node try_search.js HTML_FOLDER */
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const FIRST = {
    "missing values": "your_data",
    patients: "your_data",
    "several rows per person": "several_rows",
    accuracy: "accuracy",
    "publish accuracy": "publishing_accuracy",
    install: "install",
    "choose epsilon": "choosing_epsilon",
    kernel: "kernels",
};

const folder = process.argv[2];
let query = "";
const nothing = { appendChild: () => nothing, removeChild: () => nothing, classList: { add: () => {} } };
const context = vm.createContext({
    URLSearchParams: class {
        get() {
            return query;
        }
    },
    document: {
        readyState: "loading",
        addEventListener: () => {},
        getElementById: () => nothing,
        createElement: () => nothing,
    },
    console,
});
context.window = context;
context.location = { search: "" };
context.SPHINX_HIGHLIGHT_ENABLED = false;
const scripts = ["_static/base-stemmer.js", "_static/english-stemmer.js", "_static/language_data.js"];
scripts.push("_static/doctools.js", "_static/searchtools.js", "searchindex.js");
for (const name of scripts) {
    const file = path.join(folder, name);
    if (fs.existsSync(file)) vm.runInContext(fs.readFileSync(file, "utf8"), context, name);
}
let wrong = 0;
for (const [words, expected] of Object.entries(FIRST)) {
    query = words;
    context.words = words;
    const results = vm.runInContext("Search._performSearch(...Search._parseQuery(words))", context);
    // The search shows its last result first.
    const found = results.reverse().map((result) => result[0]);
    if (found[0] !== expected) {
        console.log(`search for "${words}": found ${found.slice(0, 4)}, expected ${expected} first`);
        wrong += 1;
    }
}
process.exit(wrong > 0 ? 1 : 0);
