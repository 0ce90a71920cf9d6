// The chat format (ChatML), as the chat template in tokenizer_config.json writes it.
export const END_OF_TEXT = "<|endoftext|>";
export const TURN_START = "<|im_start|>";
export const TURN_END = "<|im_end|>";
export const SPECIAL_TOKENS = [END_OF_TEXT, TURN_START, TURN_END];

export const CHAT_TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

const message = (role, content) => `${TURN_START}${role}\n${content}${TURN_END}\n`;

/** A whole conversation from pairs of question and answer. */
export const chat = (turns, system) =>
  (system ? message("system", system) : "") +
  turns.map(([question, answer]) => message("user", question) + message("assistant", answer)).join("");

/** What the model is given to answer one question. */
export const chatPrompt = (question) => `${message("user", question)}${TURN_START}assistant\n`;
