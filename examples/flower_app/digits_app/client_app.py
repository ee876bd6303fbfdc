"""The client: an ordinary one, which knows nothing of the server's strategy."""

import time

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, train, train_data

app = ClientApp()


@app.train()
def train_round(message: Message, context: Context) -> Message:
    settings, partition = context.run_config, context.node_config["partition-id"]
    if partition == settings["straggler"]:
        time.sleep(settings["straggler-s"])
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = train_data(partition, context.node_config["num-partitions"])
    loss = train(net, data, settings["local-epochs"], message.content["config"]["lr"])
    told = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"train_loss": loss, "num-examples": len(data)}),
    }
    return Message(RecordDict(told), reply_to=message)
