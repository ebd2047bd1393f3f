// What the theme leaves out for those who use the keyboard or a screen reader.
function complete() {
  document.querySelectorAll("nav.md-code__nav").forEach((buttons, index) => {
    buttons.ariaLabel = `Code block ${index + 1}`;
  });
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .highlight-ipynb"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; // what scrolls can be reached
}

complete();
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
window.addEventListener("resize", complete);
