// KaTeX, in this folder, draws the formulas. Nothing is loaded from other servers.
document.querySelectorAll(".arithmatex").forEach((element) => {
  const text = element.textContent.trim();
  const display = text.startsWith("\\[");
  katex.render(text.slice(2, -2), element, { displayMode: display, throwOnError: false });
});
