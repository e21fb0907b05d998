// Formulas are drawn by KaTeX, which lies beside this file: nothing is fetched from elsewhere.
document.querySelectorAll(".arithmatex").forEach((element) => {
  const text = element.textContent.trim();
  const display = text.startsWith("\\[");
  katex.render(text.slice(2, -2), element, { displayMode: display, throwOnError: false });
});
