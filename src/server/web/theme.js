// Before anything is painted: the colours that were chosen here, else the system's.
const chosen = localStorage.getItem("lantern.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
