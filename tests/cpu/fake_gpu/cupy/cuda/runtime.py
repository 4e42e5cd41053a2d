"""CUDA's runtime, as far as the measuring children ask it."""


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():
    return 1


def getDeviceProperties(ordinal):
    return {"name": b"Fake GPU", "l2CacheSize": 64 * 1024, "multiProcessorCount": 4}


def deviceGetPCIBusId(ordinal):
    return "0000:fa:ke.0"


def memGetInfo():
    return (2**30, 2**30)


def runtimeGetVersion():
    return 13000
