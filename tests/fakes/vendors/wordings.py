"""How each vendor words what went wrong: the status and the body of every fault, by vendor and name. It does not know HTTP.

    too_long     the request does not fit the window        bad_key      the key is none
    policy       the question is refused for its content    no_money     the account has no credit
    limited      too many requests for now                  server       a fault of the server's, 500
    unavailable  503                                        overloaded   529, or what the vendor says in its place
    no_model     there is no model of that name             invalid      the request is malformed
"""

from __future__ import annotations

from typing import Any

Told = tuple[int, Any]

_ID = "0217612345678901234567890"


def _openai(status: int, message: str, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None) -> Told:
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic(status: int, kind: str, message: str) -> Told:
    return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


def _google(status: int, kind: str, message: str, **detail: Any) -> Told:
    details = {"details": [{"@type": f"type.googleapis.com/google.rpc.{name}", **body} for name, body in detail.items()]} if detail else {}
    return status, {"error": {"code": status, "message": message, "status": kind, **details}}


def _plain(status: int, **error: Any) -> Told:
    return status, {"error": error}


def _minimax(status: int, kind: str, message: str) -> Told:
    return status, {"type": "error", "error": {"type": kind, "message": message, "http_code": str(status)}, "request_id": "06340988ef34a8f0"}


def _silicon(status: int, code: int, message: str) -> Told:
    return status, {"code": code, "message": message, "data": None}


_FAULTS: dict[str, dict[str, Told]] = {
    "openai": {
        "too_long": _openai(
            400,
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 140211 tokens. "
            "Please reduce the length of the messages.",
            code="context_length_exceeded",
            param="messages",
        ),
        "bad_key": _openai(401, "Incorrect API key provided: sk-wrong. You can find your API key at the account page.", code="invalid_api_key"),
        "policy": _openai(400, "Your request was rejected as a result of our safety system.", code="content_policy_violation"),
        "no_money": _openai(429, "You exceeded your current quota, please check your plan.", "insufficient_quota", "insufficient_quota"),
        "limited": _openai(429, "Rate limit reached for gpt-5 in organization org-x on requests per min (RPM).", "requests", "rate_limit_exceeded"),
        "server": _openai(500, "The server had an error while processing your request. Sorry about that!", "server_error"),
        "unavailable": _openai(503, "The engine is currently overloaded, please try again later.", "server_error"),
        "overloaded": _openai(529, "The engine is currently overloaded, please try again later.", "server_error"),
        "no_model": _openai(404, "The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"),
        "invalid": _openai(400, "Invalid type for 'messages[0].content'.", param="messages[0].content"),
    },
    "responses": {
        "too_long": _openai(
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
            param="input",
        ),
        "policy": _openai(
            400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", code="invalid_prompt", param="input"
        ),
    },
    "anthropic": {
        "too_long": _anthropic(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        "too_long_with_answer": _anthropic(
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
        ),
        "too_large": _anthropic(413, "request_too_large", "Request exceeds the maximum size"),
        "bad_key": _anthropic(401, "authentication_error", "invalid x-api-key"),
        "forbidden": _anthropic(403, "permission_error", "Your API key does not have permission to use the specified resource."),
        "policy": _anthropic(400, "invalid_request_error", "Output blocked by content filtering policy"),
        "no_money": _anthropic(
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        ),
        "limited": _anthropic(
            429, "rate_limit_error", "This request would exceed your organization's rate limit of 30,000 input tokens per minute."
        ),
        "server": _anthropic(500, "api_error", "Internal server error"),
        "unavailable": _anthropic(503, "api_error", "Service unavailable"),
        "overloaded": _anthropic(529, "overloaded_error", "Overloaded"),
        "no_model": _anthropic(404, "not_found_error", "model: claude-9"),
        "invalid": _anthropic(400, "invalid_request_error", "messages: at least one message is required"),
    },
    "gemini": {
        "too_long": _google(400, "INVALID_ARGUMENT", "The input token count (1204113) exceeds the maximum number of tokens allowed (1048576)."),
        "bad_key": _google(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            ErrorInfo={"reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": {"service": "generativelanguage.googleapis.com"}},
        ),
        "forbidden": _google(403, "PERMISSION_DENIED", "Permission denied: Consumer 'api_key:x' has been suspended."),
        "policy": (200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}}),
        "limited": _google(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details. Please retry in 7.2s.",
            QuotaFailure={"violations": [{"quotaMetric": "generate_content_free_tier_requests", "quotaValue": "10"}]},
            RetryInfo={"retryDelay": "7s"},
        ),
        "server": _google(500, "INTERNAL", "An internal error has occurred. Please retry."),
        "unavailable": _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        "overloaded": _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        "no_model": _google(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent."),
        "invalid": _google(400, "INVALID_ARGUMENT", "* GenerateContentRequest.contents: contents is not specified"),
    },
    "deepseek": {
        "too_long": _openai(
            400,
            "This model's maximum context length is 131072 tokens. However, you requested 141403 tokens "
            "(133211 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            code="invalid_request_error",
        ),
        "bad_key": _openai(401, "Authentication Fails, Your api key: ****6789 is invalid", "authentication_error", "invalid_request_error"),
        "policy": _openai(400, "Content Exists Risk", code="invalid_request_error"),
        "no_money": _openai(402, "Insufficient Balance", "unknown_error", "invalid_request_error"),
        "limited": _openai(429, "Rate limit reached. Please pace your requests.", "rate_limit_error", "rate_limit_error"),
        "unavailable": _openai(503, "Service is too busy. We advise users to switch to alternative providers.", "service_unavailable_error"),
    },
    "groq": {
        "too_long": _openai(400, "Please reduce the length of the messages or completion.", code="context_length_exceeded", param="messages"),
        "too_large": _openai(
            413,
            "Request too large for model `llama-3.3-70b-versatile` on tokens per minute (TPM): Limit 6000, Requested 8212, "
            "please reduce your message size and try again.",
            "tokens",
            "rate_limit_exceeded",
        ),
        "bad_key": _openai(401, "Invalid API Key", code="invalid_api_key"),
        "limited": _openai(
            429, "Rate limit reached for model `llama-3.3-70b-versatile` on requests per minute (RPM): Limit 30.", "requests", "rate_limit_exceeded"
        ),
        "unavailable": _openai(503, "Service unavailable", "internal_server_error", "service_unavailable"),
        "overloaded": _openai(498, "Flex tier capacity exceeded", "capacity_exceeded"),
    },
    "moonshot": {
        "too_long": _plain(400, message="Invalid request: Your request exceeded model token limit: 131072", type="invalid_request_error"),
        "bad_key": _plain(401, message="Invalid Authentication", type="invalid_authentication_error"),
        "policy": _plain(400, message="The request was rejected because it was considered high risk", type="content_filter"),
        "no_money": _plain(
            429,
            message="Your account org-x <ak-x> is suspended, please check your plan and billing details",
            type="exceeded_current_quota_error",
        ),
        "limited": _plain(429, message="Your account reached max request, please try again after 1 seconds", type="rate_limit_reached_error"),
        "overloaded": _plain(429, message="The engine is currently overloaded, please try again later", type="engine_overloaded_error"),
    },
    "minimax": {
        "too_long": _minimax(400, "bad_request_error", "invalid params, context window exceeds limit (2013)"),
        "bad_key": _minimax(401, "authorized_error", "login fail: Please carry the API secret key in the 'Authorization' field (1004)"),
        "policy": _minimax(400, "bad_request_error", "input new_sensitive (1026)"),
        "no_money": _minimax(402, "insufficient_balance_error", "insufficient balance (1008)"),
        "limited": _minimax(429, "rate_limit_error", "rate limit exceeded (1002)"),
        "server": _minimax(500, "api_error", "unknown error, 999 (1000)"),
        "overloaded": _minimax(529, "overloaded_error", "the server cluster is under high load, please retry later (2064)"),
    },
    "zhipu": {
        "too_long": _plain(400, code="1261", message="Prompt exceeds max length"),
        "too_long_by_count": _plain(
            400, code="1210", message="API 调用参数有误，请检查文档。Request 212387 input tokens exceeds the model's maximum context length 202750"
        ),
        "bad_key": _plain(401, code="401", message="令牌已过期或验证不正确"),
        "policy": _plain(400, code="1301", message="系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语。"),
        "no_money": _plain(429, code="1113", message="余额不足或无可用资源包,请充值。"),
        "limited": _plain(429, code="1302", message="您的账户已达到速率限制，请您控制请求频率"),
        "server": _plain(500, code="1234", message="网络错误，错误id：202602261029392bc0093d0e944297，请联系客服。"),
        "overloaded": _plain(429, code="1305", message="该模型当前访问量过大，请您稍后再试"),
    },
    "dashscope": {
        "too_long": _openai(
            400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]", code="invalid_parameter_error"
        ),
        "bad_key": _openai(401, "Incorrect API key provided.", code="invalid_api_key"),
        "policy": _openai(400, "Input data may contain inappropriate content.", "data_inspection_failed", "data_inspection_failed"),
        "no_money": _openai(400, "Access denied, please make sure your account is in good standing.", "Arrearage", "Arrearage"),
        "limited": _openai(429, "You exceeded your current requests list.", "limit_requests", "limit_requests"),
        "overloaded": _openai(503, "Too many requests. The model is at capacity.", "ServiceUnavailable", "ServiceUnavailable"),
    },
    "openrouter": {
        "too_long": _plain(
            400,
            message="This endpoint's maximum context length is 131072 tokens. However, you requested about 141000 tokens (139000 of text input, "
            "2000 in the output). Please reduce the length of either one, or use the context-compression plugin.",
            code=400,
            metadata={"provider_name": None},
        ),
        "too_long_passed_on": _plain(
            400,
            message="Provider returned error",
            code=400,
            metadata={
                "raw": '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}',
                "provider_name": "Anthropic",
            },
        ),
        "bad_key": _plain(401, message="No auth credentials found", code=401),
        "policy": _plain(
            403,
            message="Your chosen model requires moderation and your input was flagged",
            code=403,
            metadata={"reasons": ["violence"], "flagged_input": "how to", "provider_name": "OpenAI", "model_slug": "openai/gpt-5"},
        ),
        "no_money": _plain(402, message="Insufficient credits. Add more using https://openrouter.ai/settings/credits", code=402),
        "limited": _plain(429, message="Rate limit exceeded: free-models-per-min.", code=429, metadata={"headers": {"X-RateLimit-Limit": "20"}}),
        "server": _plain(500, message="Internal Server Error", code=500),
        "unavailable": _plain(503, message="No instances available for this model", code=503),
        "overloaded": _plain(502, message="Provider returned error", code=502, metadata={"raw": "Overloaded", "provider_name": "Anthropic"}),
    },
    "aihubmix": {
        "too_long": _openai(
            400,
            f"length of prompt_tokens (139216) must be less than max_seq_len (98304). (request id: {_ID})",
            "upstream_error",
            "bad_response_status_code",
            "400",
        ),
        "bad_key": _openai(401, f"无效的令牌 (request id: {_ID})", "Aihubmix_api_error", ""),
        "no_money": _openai(403, f"用户额度不足, 剩余额度: ＄0.000000 (request id: {_ID})", "Aihubmix_api_error", "insufficient_user_quota"),
        "limited": _openai(429, f"当前分组上游负载已饱和，请稍后再试 (request id: {_ID})", "Aihubmix_api_error", "rate_limit_exceeded"),
        "unavailable": _openai(503, f"当前分组 default 下对于模型 x 无可用渠道 (request id: {_ID})", "Aihubmix_api_error", "model_not_found"),
    },
    "siliconflow": {
        "too_long": _silicon(400, 20015, "length of prompt_tokens (68957) must be less than max_seq_len (65536)."),
        "too_long_with_answer": _silicon(400, 20015, "max_total_tokens (33802) must be less than or equal to max_seq_len (32768)"),
        "bad_key": (401, "Api key is invalid"),
        "no_money": _silicon(403, 30001, "Sorry, your account balance is insufficient"),
        "limited": _silicon(429, 50603, "Request was rejected due to rate limiting. Details: RPM limit reached."),
        "server": _silicon(500, 50500, "Internal error."),
        "unavailable": _silicon(503, 50505, "Model service overloaded. Please try again later."),
        "overloaded": _silicon(503, 50505, "Model service overloaded. Please try again later."),
        "no_model": _silicon(400, 20012, "Model does not exist. Please check it carefully."),
    },
    "volcengine": {
        "too_long": _openai(
            400, f"Input length 203743 exceeds the maximum length 202752. Request id: {_ID}", "BadRequest", "InvalidParameter", ""
        ),
        "too_long_with_images": _openai(
            400, f"Total tokens of image and text exceed max message tokens. Request id: {_ID}", "BadRequest", "InvalidParameter", ""
        ),
        "bad_key": _openai(401, f"The API key format is incorrect. Request id: {_ID}", "Unauthorized", "AuthenticationError", ""),
        "policy": _openai(
            400,
            f"The request failed because the input text may contain sensitive information. Request id: {_ID}",
            "BadRequest",
            "SensitiveContentDetected",
            "",
        ),
        "no_money": _openai(
            403, f"The request failed because your account has an overdue balance. Request id: {_ID}", "Forbidden", "AccountOverdueError", ""
        ),
        "limited": _openai(
            429, f"The Requests Per Minute (RPM) limit of the associated endpoint has been exceeded. Request id: {_ID}", "TooManyRequests",
            "RateLimitExceeded.EndpointRPMExceeded", "",
        ),
        "server": _openai(500, f"The service ran into an internal error. Request id: {_ID}", "InternalServerError", "InternalServiceError", ""),
        "overloaded": _openai(
            429, f"The service is currently unable to handle additional requests. Request id: {_ID}", "TooManyRequests", "ServerOverloaded", ""
        ),
    },
    "vllm": {
        "too_long": _openai(
            400,
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in the completion).",
            "BadRequestError",
        ),
        "too_long_of_old": (
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "type": "BadRequestError", "code": 400},
        ),
        "bad_key": (401, {"error": "Unauthorized"}),
        "server": (500, {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": None, "code": 500}}),
        "no_model": (404, {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "param": None, "code": 404}}),
    },
    "ollama": {
        "too_long": (400, {"error": "the input length exceeds the context length"}),
        "too_long_in_cloud": (400, {"error": "prompt too long; exceeded max context length by 1203 tokens"}),
        "bad_key": (401, {"error": "unauthorized"}),
        "limited": (429, {"error": "you have reached your hourly usage limit, please upgrade to continue"}),
        "server": (500, {"error": "llama runner process has terminated: exit status 2"}),
        "unavailable": (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),
        "overloaded": (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),
        "no_model": (404, {"error": "model 'x' not found"}),
        "invalid": (400, {"error": "invalid message content type: <nil>"}),
    },
    "llamacpp": {
        "too_long": _plain(
            400,
            code=400,
            message="request (5012 tokens) exceeds the available context size (4096 tokens), try increasing it",
            type="exceed_context_size_error",
            n_prompt_tokens=5012,
            n_ctx=4096,
        ),
        "unavailable": _plain(503, code=503, message="Loading model", type="unavailable_error"),
    },
}
_OWN = {"anthropic", "gemini", "ollama"}  # of these nothing is OpenAI's
VENDORS = tuple(_FAULTS)


def of(vendor: str, fault: str) -> Told:
    """The status and the body; where the vendor has no words of its own, OpenAI's. Raises KeyError for a fault that neither knows."""
    told = _FAULTS[vendor]
    return told[fault] if fault in told or vendor in _OWN else _FAULTS["openai"][fault]


def named(vendor: str, beginning: str) -> list[str]:
    """The vendor's own faults whose name begins so."""
    return [name for name in _FAULTS[vendor] if name.startswith(beginning)]
