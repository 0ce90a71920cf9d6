import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { DashboardInfo } from "../api.js";
import { connection, goLive } from "./live.js";
import { Copyable, ProblemNote } from "./parts/pieces.js";
import { linkTo, type PageRoute, useRoute } from "./route.js";
import { askJson, giveToken, hadToken, isRefused, takeToken } from "./server.js";
import { PageStore, problemOf, useStore } from "./store.js";
import { ThemeButton } from "./theme.js";
import { CheckpointsView } from "./views/checkpoints.js";
import { CurvesView } from "./views/curves.js";
import { PlaygroundView } from "./views/playground.js";
import { RunsView } from "./views/runs.js";
import { SamplesView } from "./views/samples.js";
import { ServerView } from "./views/server.js";

/** Properties of every view. */
export interface ViewProps {
  readonly route: PageRoute;
  readonly info: DashboardInfo;
}

const VIEWS: readonly {
  readonly name: string;
  readonly title: string;
  readonly View: ComponentType<ViewProps>;
}[] = [
  { name: "runs", title: "Runs", View: RunsView },
  { name: "curves", title: "Curves", View: CurvesView },
  { name: "samples", title: "Samples", View: SamplesView },
  { name: "checkpoints", title: "Checkpoints", View: CheckpointsView },
  { name: "server", title: "Server", View: ServerView },
  { name: "playground", title: "Playground", View: PlaygroundView },
];

const information = new PageStore<DashboardInfo | undefined>(undefined);

/** The page: who may see it, where one is in it, and whether it is up to date. */
export function DashboardPage() {
  const route = useRoute();
  const refused = useStore(isRefused);
  const info = useStore(information);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  useEffect(() => {
    takeToken();
    // The address of another start at the same port changes nothing but what stands behind the #.
    addEventListener("hashchange", () => takeToken() && location.reload());
    askJson<DashboardInfo>("info").then(
      (answer) => {
        information.set(answer);
        goLive();
      },
      (error: unknown) => setProblem(problemOf(error)),
    );
  }, []);
  const shown = VIEWS.find(({ name }) => name === route.view) ?? VIEWS[0]!;
  useEffect(() => {
    document.title = `${shown.title} · tinkerts`;
    // On a narrow screen the tabs are wider than the page.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [shown, info !== undefined]);
  if (refused) return <TokenForm />;
  // The chosen runs stay the same from view to view.
  const runs = route.query.getAll("run");
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <header class="top">
        <span class="brand">tinkerts</span>
        <nav aria-label="Views">
          {VIEWS.map(({ name, title }) => (
            <a
              key={name}
              href={linkTo(name, { run: runs })}
              aria-current={name === shown.name ? "page" : undefined}
            >
              {title}
            </a>
          ))}
        </nav>
        <div class="top-end">
          {info?.isReadOnly && <span class="tag">read-only</span>}
          <ConnectionSign />
          <ThemeButton />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <h1 class="visually-hidden">{shown.title}</h1>
        <ProblemNote text={problem} />
        {info !== undefined && <AfterTheEnd info={info} />}
        {info !== undefined && <shown.View route={route} info={info} />}
      </main>
    </>
  );
}

function ConnectionSign() {
  const state = useStore(connection);
  const words = {
    connecting: "connecting",
    live: "live",
    lost: "connection lost, trying again",
    ended: "ended",
  } as const;
  return (
    <span class={`connection ${state}`} role="status">
      {words[state]}
    </span>
  );
}

/** How to see the runs again when the command that serves this page is gone. */
function AfterTheEnd({ info }: { readonly info: DashboardInfo }) {
  const state = useStore(connection);
  if (state !== "ended" && state !== "lost") return null;
  return (
    <div class="card padded last-state">
      <p>
        {state === "ended"
          ? "The command that served this page has ended. You see the last state."
          : "This page is not updated at the moment."}
        {info.showAgain &&
          (state === "ended"
            ? " This command shows the runs again:"
            : " If its command has ended, this one shows the runs again:")}
      </p>
      {info.showAgain && <Copyable text={info.showAgain} />}
    </div>
  );
}

function TokenForm() {
  const [text, setText] = useState("");
  const wasGiven = hadToken();
  return (
    <main class="token">
      <h1>Enter the token</h1>
      <p>
        This page needs the token of the dashboard that serves it. Open the address that the terminal printed,
        or paste it here.
      </p>
      {wasGiven && (
        <ProblemNote text="The token was refused. Each start of the dashboard has a token of its own: take the address that its terminal printed last." />
      )}
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          giveToken(text);
        }}
      >
        <label for="token">Address or token</label>
        <input
          id="token"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          autocomplete="off"
        />
        <button type="submit" class="primary" disabled={text.trim() === ""}>
          Open
        </button>
      </form>
    </main>
  );
}
