/* How the search ranks results: guides first, then the reference, then proofs and pages for developers. */
"use strict";

var Scorer = {
    score: ([page, title, anchor, descr, score]) => {
        const later = /^(proofs\/|repository\/|library_design|packages|papers|results|published_bugs|extending|notation)/;
        if (later.test(page)) return score - 40;
        const query = (new URLSearchParams(window.location.search).get("q") || "").trim().toLowerCase();
        // A page's own title, or that of a section, which follows its page's.
        const heading = title.toLowerCase().split(" > ").pop();
        const reference = /^(reference\/|genindex|py-modindex|api)/.test(page);
        if (heading.startsWith(query) && !(reference && anchor)) return score + (anchor ? 15 : 20);
        if (reference) return score - 20;
        const words = heading.split(/\W+/);
        if (query.split(/\W+/).every((one) => words.some((word) => word.startsWith(one)))) return score + 10;
        return score;
    },
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
