import { PageStore, useStore } from "./store.js";

const KEY = "tinkerts-theme";
const CHOICES = ["system", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];

/** Light, dark, or as the system has it. */
export const theme = new PageStore<Choice>(
  CHOICES.find((name) => name === localStorage.getItem(KEY)) ?? "system",
);
apply(theme.value);

function apply(choice: Choice): void {
  document.documentElement.dataset["theme"] = choice;
}

/** Goes through the choices. */
export function ThemeButton() {
  const choice = useStore(theme);
  const choose = () => {
    const next = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length]!;
    localStorage.setItem(KEY, next);
    apply(next);
    theme.set(next);
  };
  return (
    <button
      type="button"
      class="quiet"
      onClick={choose}
      aria-label={`Colours: ${choice}`}
      title={`Colours: ${choice}`}
    >
      {{ system: "◐", light: "○", dark: "●" }[choice]}
    </button>
  );
}

/** A colour of the style sheet as it is now, for what is drawn and not styled. */
export function colorOf(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
