"""The invoker: intents in, handlers run, outcomes out."""

from streams.edge.invoker.invoker import Invoker
from streams.edge.invoker.observer import InvokerObserver
from streams.edge.invoker.seams import HandlerSource, Seams

__all__ = ["HandlerSource", "Invoker", "InvokerObserver", "Seams"]
