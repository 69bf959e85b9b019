"""The Ray Serve application of a role with vLLM as its engine: `import_path: services.inference.vllm.app:build`.

It takes the same arguments as `ray.serve.llm:build_openai_app` and builds the same application, plus the batch route of
the embedded engine (services/inference/openai_api.py). The route saves time, because each request costs Serve's proxy
and ingress some milliseconds. This module needs the extra `vllm` or the CPU build of docs/gpu.md.
"""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from ray import serve
from ray.llm._internal.common.dict_utils import maybe_apply_llm_deployment_config_defaults
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    ErrorResponse,
    to_model_metadata,
)
from ray.llm._internal.serve.core.ingress.ingress import DEFAULT_ENDPOINTS
from ray.llm._internal.serve.core.ingress.utils import _sanitize_chat_completion_request
from ray.serve import Application
from ray.serve.llm import LLMServingArgs, build_llm_deployment
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from typing_extensions import override

from services.inference.openai_api import CHATS_AT_ONCE


class ChatBatch(BaseModel):
    """Like `openai_api.ChatBatchRequest`, but with vLLM's own chat requests."""

    requests: list[ChatCompletionRequest] = Field(min_length=1, max_length=CHATS_AT_ONCE)


class BatchIngress(OpenAiIngress):
    """The application's routes."""

    @override
    async def models(self) -> JSONResponse:
        """Ray's list of models, with `batches` to announce the batch route."""
        models = (await super().models()).model_dump()
        return JSONResponse({**models, "data": [{**model, "batches": True} for model in models["data"]]})

    async def chats(self, batch: ChatBatch) -> JSONResponse:
        """Several chats with one model, which one replica answers. If one is refused, all are."""
        model_names = {request.model for request in batch.requests}
        if len(model_names) > 1:
            raise HTTPException(400, f"requests: expected one model for all, got {sorted(map(str, model_names))}")
        server = self._get_configured_serve_handle(await self._get_model_id(model_names.pop()))
        requests = [_sanitize_chat_completion_request(request) for request in batch.requests]
        [replies] = [item async for item in server.chats.remote(requests)]
        if isinstance(replies, ErrorResponse):
            raise HTTPException(replies.error.code, replies.error.message)
        return JSONResponse({"responses": replies})


def build(args: dict[str, Any]) -> Application:
    """Build the application. `args` are those of `ray.serve.llm:build_openai_app`; Serve config files name this."""
    serving = LLMServingArgs.model_validate(args)
    options = maybe_apply_llm_deployment_config_defaults(
        BatchIngress.get_deployment_options(serving.llm_configs), serving.ingress_deployment_config
    )
    routes = {
        **DEFAULT_ENDPOINTS,
        "models": lambda app: app.get("/v1/models"),
        "chats": lambda app: app.post("/v1/chat/completions/batch"),
    }
    deployment: Any = serve.deployment(make_fastapi_ingress(BatchIngress, endpoint_map=routes), **options)
    application: Application = deployment.bind(
        llm_deployments={config.model_id: build_llm_deployment(config) for config in serving.llm_configs},
        model_cards={config.model_id: to_model_metadata(config.model_id, config) for config in serving.llm_configs},
        lora_paths={},
    )
    return application
