export * from "../tokenizers/python-json.js";
