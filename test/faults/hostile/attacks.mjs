// The attacks of beside.mjs. Each has a `name` and makes requests from a random source, the world and a number:
// - `ordinary(random, world, index)`: what a well-meaning user would send; must be answered with 200;
// - `hostile(random, world, index)`: what is made to exhaust the server.
// Both give `{ kind, request: { method, path, headers, body }, check?, mustRefuse? }`; `check(json)` says what is wrong with
// an answer of 200, and `mustRefuse` that there must be none. `limits` are those of the server, where they are not the usual ones.
// `models(folder)` writes models that the server has besides nano. `least` is how many requests it needs; `begin()` gives `see(kind, answer, world)`, called with each hostile answer, and
// `end(world)`, what else is wrong at the end, a sentence each.
import { bodies } from "./bodies.mjs";
import { graphs } from "./graphs.mjs";
import { schemas } from "./schemas.mjs";
import { templates } from "./templates.mjs";
import { tenants } from "./tenants.mjs";

export const attacks = [schemas, bodies, templates, graphs, tenants];
