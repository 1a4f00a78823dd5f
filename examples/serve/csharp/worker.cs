// Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
//
//   mcs worker.cs
//   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_HOST=127.0.0.1 SHOP_PORT=6379 mono worker.exe 42
using System;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Text;

static class Worker
{
    static int Main(string[] arguments)
    {
        var order = arguments[0];
        var write = File.ReadAllText("../write.lua");
        var host = Environment.GetEnvironmentVariable("SHOP_HOST");
        var port = int.Parse(Environment.GetEnvironmentVariable("SHOP_PORT"));
        var path = Environment.GetEnvironmentVariable("QUORLOCK_SOCKET");
        using (var shop = new Connection(new TcpClient(host, port).Client))
        // A lease belongs to a connection. The end of `using` closes it, which releases the lease.
        using (var locks = Connection.ToUnix(path))
        {
            object[] lease;
            try
            {
                lease = (object[])locks.Ask("LOCK", "orders:" + order, "WAIT", 1000);
            }
            catch (ErrorReplyException error) when (error.Message.StartsWith("TIMEOUT "))
            {
                Console.WriteLine($"order {order} is being handled");
                return 0;
            }
            var (id, fence) = (lease[0], lease[1]);
            Console.WriteLine($"order {order} locked, fence {fence}");
            shop.Ask("BLPOP", "payments:" + order, 0);
            locks.Ask("CHECK", id); // throws if the lease was lost
            if (!shop.Ask("EVAL", write, 1, "order:" + order, fence, "paid").Equals(1L))
            {
                throw new InvalidOperationException("a later worker has written");
            }
            Console.WriteLine($"order {order} paid");
            locks.Ask("UNLOCK", id);
            return 0;
        }
    }
}

/// <summary>One connection that speaks the protocol of Redis. StackExchange.Redis shares its connections between
/// threads, and replaces them by itself, so a lease cannot belong to one.</summary>
sealed class Connection : IDisposable
{
    readonly NetworkStream stream;
    readonly BinaryReader reader;

    public Connection(Socket socket)
    {
        stream = new NetworkStream(socket, ownsSocket: true);
        reader = new BinaryReader(new BufferedStream(stream));
    }

    public static Connection ToUnix(string path)
    {
        var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        socket.Connect(new UnixDomainSocketEndPoint(path));
        return new Connection(socket);
    }

    /// <summary>Sends a request, and returns its reply: a text, a number, an array or null.</summary>
    public object Ask(params object[] words)
    {
        var texts = words.Select(word => $"${Encoding.UTF8.GetByteCount($"{word}")}\r\n{word}\r\n");
        var request = Encoding.UTF8.GetBytes($"*{words.Length}\r\n{string.Concat(texts)}");
        stream.Write(request, 0, request.Length);
        return Reply();
    }

    object Reply()
    {
        var line = Line();
        var rest = line.Substring(1);
        switch (line[0])
        {
            case '-': throw new ErrorReplyException(rest);
            case ':': return long.Parse(rest);
            case '+': return rest;
        }
        var count = int.Parse(rest);
        if (count < 0) return null;
        if (line[0] == '*') return Enumerable.Range(0, count).Select(_ => Reply()).ToArray();
        var text = reader.ReadBytes(count);
        Line();
        return Encoding.UTF8.GetString(text);
    }

    string Line()
    {
        var line = new StringBuilder();
        while (line.Length < 2 || line[line.Length - 1] != '\n') line.Append((char)reader.ReadByte());
        return line.ToString(0, line.Length - 2);
    }

    public void Dispose() => stream.Dispose();
}

sealed class ErrorReplyException : Exception
{
    public ErrorReplyException(string message) : base(message) { }
}
