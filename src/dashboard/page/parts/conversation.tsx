import type { ShownMessage, ShownPart } from "../../api.js";

/** Messages one below the other: who says what, thinks what and calls what. */
export function ConversationView({ messages }: { readonly messages: readonly ShownMessage[] }) {
  return (
    <ol class="conversation">
      {messages.map((message, place) => (
        <li key={place} class={`message ${roleClass(message.role)}`}>
          <span class="role">{message.role}</span>
          {message.parts.length === 0 && <span class="note">says nothing</span>}
          {message.parts.map((part, index) => (
            <Part key={index} part={part} />
          ))}
        </li>
      ))}
    </ol>
  );
}

function Part({ part }: { readonly part: ShownPart }) {
  switch (part.type) {
    case "text":
      return <div class="text">{part.text}</div>;
    case "thinking":
      return (
        <details class="thinking" open>
          <summary>thinks</summary>
          <div class="text">{part.text}</div>
        </details>
      );
    case "call":
      return (
        <div class="call">
          <span class="note">calls</span> <strong>{part.name}</strong>
          <pre class="mono text">{part.text}</pre>
        </div>
      );
    case "other":
      return <pre class="mono text">{part.text}</pre>;
    default:
      return part satisfies never;
  }
}

function roleClass(role: string): string {
  return ["system", "user", "assistant", "tool"].includes(role) ? role : "";
}
