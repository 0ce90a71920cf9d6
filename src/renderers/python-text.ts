export * from "../tokenizers/python-text.js";
