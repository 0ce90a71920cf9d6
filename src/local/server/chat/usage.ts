/** What an answer took, counted while it is made. */
export class Usage {
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;
  reasoningTokens = 0;

  toJson(): object {
    return {
      prompt_tokens: this.promptTokens,
      completion_tokens: this.completionTokens,
      total_tokens: this.promptTokens + this.completionTokens,
      prompt_tokens_details: { cached_tokens: this.cachedTokens },
      completion_tokens_details: { reasoning_tokens: this.reasoningTokens },
    };
  }
}
