import { useState } from "preact/hooks";
import type { RunDetails } from "../../api.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";
import { Loaded, Swatch } from "./pieces.js";

/** Settings of runs and the ends of their logs; loaded when the panel is opened. */
export function Settings({
  ids,
  names,
}: {
  readonly ids: readonly string[];
  readonly names: readonly string[];
}) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details class="plain card padded" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>Settings and log</summary>
      {isOpen && <SettingsTable {...{ ids, names }} />}
    </details>
  );
}

function SettingsTable({
  ids,
  names,
}: {
  readonly ids: readonly string[];
  readonly names: readonly string[];
}) {
  const [isAll, setIsAll] = useState(ids.length === 1);
  const asked = useAsked(
    (signal) => Promise.all(ids.map((id) => askJson<RunDetails>(`runs/${id}`, { signal }))),
    [ids.join()],
  );
  return (
    <Loaded asked={asked}>
      {(runs) => {
        const settings = [...new Set(runs.flatMap(({ config }) => Object.keys(config)))];
        const textsOf = (name: string) =>
          runs.map(({ config }) => (Object.hasOwn(config, name) ? JSON.stringify(config[name]) : ""));
        const isDifferent = (name: string) => new Set(textsOf(name)).size > 1;
        const differing = settings.filter(isDifferent);
        const shown = isAll ? [...differing, ...settings.filter((name) => !isDifferent(name))] : differing;
        return (
          <>
            {settings.length === 0 && <p class="note">There is no config.json.</p>}
            {ids.length > 1 && settings.length > 0 && (
              <div class="bar">
                <label>
                  <input
                    type="checkbox"
                    checked={!isAll}
                    onChange={(event) => setIsAll(!event.currentTarget.checked)}
                  />
                  Only settings that differ
                </label>
                {differing.length === 0 && <span class="note">All settings are the same.</span>}
              </div>
            )}
            {shown.length > 0 && (
              <div class="table-frame">
                <table class="compact">
                  <thead>
                    <tr>
                      <th>Setting</th>
                      {names.map((name, place) => (
                        <th key={place}>
                          <Swatch place={place} /> {name}
                        </th>
                      ))}
                    </tr>
                  </thead>
                  <tbody>
                    {shown.map((name) => (
                      <tr key={name}>
                        <th scope="row" class="text">
                          {name}
                          {isDifferent(name) && <span class="note"> differs</span>}
                        </th>
                        {textsOf(name).map((text, place) => (
                          <td key={place} class="mono text">
                            {text}
                          </td>
                        ))}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
            {runs.map(
              ({ log }, place) =>
                log !== "" && (
                  <section key={place} aria-label={`Log of ${names[place]}`}>
                    <h3>
                      <Swatch place={place} /> {names[place]}
                    </h3>
                    <pre class="mono text log">{log}</pre>
                  </section>
                ),
            )}
          </>
        );
      }}
    </Loaded>
  );
}
