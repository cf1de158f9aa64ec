// What scrolls can be reached by keyboard.
document$.subscribe(() => setTimeout(() => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) each.tabIndex = 0;
}));
