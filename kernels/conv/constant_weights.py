"""Copies the weights into constant memory before the launch that the header declares."""


def prepare(kernels, layer, images, launch):
    weights = kernels.symbol("weights")

    def call(x, w, y):
        weights.copy(w)
        launch(x, w, y)

    def call_with_bias(x, w, bias, y):
        weights.copy(w)
        launch(x, w, bias, y)

    return call_with_bias if "bias" in layer.inputs else call
