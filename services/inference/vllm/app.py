"""The Ray Serve application of a role whose engine is vLLM: `import_path: services.inference.vllm.app:build`.

It is what `ray.serve.llm:build_openai_app` builds, of the same arguments, with the embedded engine's route for several
chats in a request (services/inference/openai_api.py): a request costs Serve's proxy and ingress some milliseconds,
however little it asks. It needs the extra `vllm` or docs/vllm.md's CPU build.
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

from services.inference.openai_api import CHATS_AT_ONCE


class ChatBatch(BaseModel):
    """As `openai_api.ChatBatchRequest`, of chats as vLLM takes them."""

    requests: list[ChatCompletionRequest] = Field(min_length=1, max_length=CHATS_AT_ONCE)


class BatchIngress(OpenAiIngress):
    """The application's routes."""

    async def models(self) -> JSONResponse:
        """Ray's own list, which says besides that the server takes several chats in a request."""
        models = (await super().models()).model_dump()
        return JSONResponse({**models, "data": [{**model, "batches": True} for model in models["data"]]})

    async def chats(self, batch: ChatBatch) -> JSONResponse:
        """Several chats of one model, which one replica answers; one that is refused has all of them refused."""
        names = {request.model for request in batch.requests}
        if len(names) > 1:
            raise HTTPException(400, f"requests: expected one model, got {sorted(map(str, names))}")
        server = self._get_configured_serve_handle(await self._get_model_id(names.pop()))
        requests = [_sanitize_chat_completion_request(request) for request in batch.requests]
        [replies] = [item async for item in server.chats.remote(requests)]
        if isinstance(replies, ErrorResponse):
            raise HTTPException(replies.error.code, replies.error.message)
        return JSONResponse({"responses": replies})


def build(args: dict[str, Any]) -> Application:
    """The application that a Serve config file names; `args` as `ray.serve.llm:build_openai_app` takes them."""
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
