import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Asked } from "../store.js";

/** A note where there is nothing to show. */
export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="card empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Something that went wrong, in its own words. */
export function ProblemNote({ text }: { readonly text: string | undefined }) {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

/** Shows a loaded value, a note while it loads, or the problem. */
export function Loaded<T>({
  asked,
  children,
}: {
  readonly asked: Asked<T>;
  readonly children: (answer: T) => ComponentChildren;
}) {
  if (asked.answer !== undefined) return <>{children(asked.answer)}</>;
  if (asked.problem !== undefined) return <ProblemNote text={asked.problem} />;
  return (
    <p class="note" role="status">
      Loading…
    </p>
  );
}

/** The colour of a run by its place among those that are compared. */
export function Swatch({ place }: { readonly place: number }) {
  return <span class="swatch" style={{ "--swatch": `var(--run-${place})` }} aria-hidden="true" />;
}

/** A command or path on a line of its own, with a button that copies it. */
export function Copyable({ text }: { readonly text: string }) {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <span class="copyable">
      <code class="mono">{text}</code>
      <button
        type="button"
        class="small"
        onClick={() => void navigator.clipboard.writeText(text).then(() => setIsCopied(true))}
      >
        {isCopied ? "Copied" : "Copy"}
      </button>
    </span>
  );
}

/** A command to copy. */
export function Command({ children }: { readonly children: string }) {
  return <code class="mono">{children}</code>;
}
