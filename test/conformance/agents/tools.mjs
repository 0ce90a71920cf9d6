// What the agents of these programs are asked, and the tool they have.
import { z } from "zod";

export const QUESTION = "What is 19 + 23 + 8? Add two numbers at a time.";
export const MODEL = "gpt-4o";
export const baseURL = process.env.OPENAI_BASE_URL;
export const apiKey = process.env.OPENAI_API_KEY;
export const isStreamed = process.env.STREAMED === "1";
export const parameters = z.object({ a: z.number(), b: z.number() });
export const description = "Adds two numbers.";
export const add = ({ a, b }) => String(a + b);

/** The last line that a program prints. */
export const say = (text) => console.log(JSON.stringify({ text }));
