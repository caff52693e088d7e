"""splitjax: hybrid split federated learning; a round is one XLA program.

`__init__.pyi` lists the public names. They are imported on first use, so that
an error in a flag or a config is reported before the training libraries load.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
