"""The program `hermesd`: what must be settled before gRPC is imported, then its command line.

gRPC reads its settings from the environment, once, at its import. It has none for the versions of
TLS but the ciphers of each: those of TLS 1.3 are always on, and of what came before it this leaves
only one that needs a shared key, which nobody has.
"""

import os

ONLY_TLS_1_3 = "ECDHE-PSK-AES128-CBC-SHA"


def main() -> None:
    """The entry point."""
    os.environ["GRPC_SSL_CIPHER_SUITES"] = ONLY_TLS_1_3
    from hermesd import cli

    cli.main()


if __name__ == "__main__":
    main()
